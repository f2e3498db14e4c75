"""Known noise variances in a column of a file: training, scores, and predictions."""

import numpy as np
import pandas as pd
import pytest

import gpflow_sparse as gs
from tests.tables.cli.command_line import last_json
from tests.tables.cli.command_line import run as run


def test_a_column_of_variances_is_no_input_and_widens_intervals(run, tmp_path):
    rng = np.random.default_rng(0)
    a, s2 = rng.random(60), rng.choice([0.001, 0.5], size=60)
    y = np.sin(6.0 * a) + np.sqrt(s2) * rng.normal(size=60)
    frame = pd.DataFrame({"s2": s2, "a": a, "y": y})
    pd.concat([frame, frame[:3]]).to_csv(tmp_path / "my.csv", index=False)  # copies are left out
    options = "--noise-column", "s2", "--method", "exact", "--no-plot", "--output", "run"
    assert run("fit", "--data", "my.csv", *options)[0] == 0
    model = gs.load(tmp_path / "run" / "model.safetensors")
    assert list(model.encoder_.feature_names_in_) == ["a"]
    assert len(model.model_.known_variance) == 54

    def predicted(data):
        data.to_csv(tmp_path / "new.csv", index=False)
        code, *_ = run("predict", "--model", "run", "--data", "new.csv", "--output", "p.csv")
        assert code == 0
        return pd.read_csv(tmp_path / "p.csv")

    found, without = predicted(frame), predicted(frame[["a"]])
    added = found["standard_deviation"] ** 2 - without["standard_deviation"] ** 2
    np.testing.assert_allclose(added, s2, rtol=1e-6)
    frame.to_csv(tmp_path / "my.csv", index=False)
    code, out, _ = run("evaluate", "--model", "run", "--data", "my.csv")
    errors = np.square(y - found["mean"]) / found["standard_deviation"] ** 2
    nlpd = 0.5 * np.mean(errors + np.log(2.0 * np.pi * found["standard_deviation"] ** 2))
    assert code == 0
    assert last_json(out)["scores"]["nlpd"] == pytest.approx(nlpd, rel=1e-6)
