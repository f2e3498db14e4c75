"""What a run is."""

import pytest

from gpflow_sparse.experiments.config import RunConfig, memory_estimate


@pytest.mark.parametrize(
    "wrong",
    [
        {"method": "magic"},
        {"kernel": "linear"},
        {"initialization": "best"},
        {"schedule": "wild"},
        {"task": "ranking"},
        {"num_inducing": 0},
        {"num_orthogonal": -1},
        {"batch_size": 0},
        {"learning_rate": 0.0},
        {"natural_gradients": 1.5},
        {"num_columns": -1},
    ],
)
def test_a_wrong_field_is_named(wrong):
    (name,) = wrong
    with pytest.raises(ValueError, match=name):
        RunConfig(**wrong)


def test_the_baseline_has_the_same_m_and_no_orthogonal_set():
    base = RunConfig(num_inducing=40, num_orthogonal=30).as_baseline()
    assert (base.method, base.sizes) == ("svgp", (40,))


def test_the_memory_estimate_grows_as_it_should():
    config = RunConfig(num_inducing=512, num_orthogonal=512)
    single = RunConfig(num_inducing=512, num_orthogonal=512, float32=True)
    need = memory_estimate(config, 100_000, 8)
    assert memory_estimate(single, 100_000, 8) == need // 2
    # ten 1024 x 1024, ten 1024 x 1024 for the batch, data and parameters, in doubles
    assert need == 8 * (900_000 + 4 * (8192 + 2 * (131072 + 512)) + 20 * 1024**2)
