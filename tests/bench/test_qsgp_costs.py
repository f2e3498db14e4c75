"""What a step of QSGP costs, and how far its gradients are from the exact one."""

import gpflow
import numpy as np
import pytest
import tensorflow as tf

from gpflow_sparse.bases import RandomFourier
from gpflow_sparse.bench import qsgp_costs, qsgp_memory, qsgp_variance
from gpflow_sparse.bench.qsgp_costs import StepCost
from gpflow_sparse.bench.qsgp_sizes import StepMemory, StepSizes
from gpflow_sparse.bench.qsgp_variance import VarianceSizes
from gpflow_sparse.models import QSGP
from tests.oracles import qsgp as oracle

SIZES = StepSizes(batch_size=6, basis_batch_size=8, num_support=5, input_dim=2, num_inducing=4)
NOISE = 0.3


def test_every_size_is_timed_once_and_svgp_beside_it(monkeypatch, tmp_path):
    monkeypatch.setattr(qsgp_costs, "_NUM_BASIS", 20)
    monkeypatch.setattr(qsgp_costs, "_NUM_DATA", 50)
    costs = qsgp_costs.step_costs([10, 20], [50, 70], SIZES, repeats=2)
    assert [(c.title, c.num_basis, c.num_data) for c in costs] == [
        ("QSGP", 10, 50),
        ("QSGP", 20, 50),
        ("QSGP", 20, 70),
        ("QSGP, hyperparameters learned", 20, 50),
        ("GPflow SVGP(4)", None, 50),
    ]
    assert all(cost.milliseconds > 0.0 for cost in costs)
    pytest.importorskip("matplotlib")
    qsgp_costs.write_costs(tmp_path / "new", costs, [StepMemory(20, 1.0, 2.0, 4.4)])
    table = (tmp_path / "new" / "step-qsgp.md").read_text().splitlines()
    assert table[3].endswith("| 1 | 3 |")
    assert (tmp_path / "new" / "step-qsgp.png").read_bytes().startswith(b"\x89PNG")


def test_the_table_has_the_memory_beyond_the_weights():
    costs = [StepCost("QSGP", 10, 50, 1.23), StepCost("GPflow SVGP(4)", None, 50, 4.56)]
    _, rows = qsgp_costs.cost_table(costs, [StepMemory(10, 100.0, 150.0, 180.0)])
    assert rows == [
        ("QSGP", "10", "50", "1.2", "100", "80"),
        ("GPflow SVGP(4)", "", "50", "4.6", "", ""),
    ]


@pytest.mark.nightly
def test_memory_is_that_of_a_process_of_its_own():
    found = qsgp_memory.step_memory(1000, SIZES, float32=True, num_steps=1)
    np.testing.assert_allclose(found.held, 4 * 1000 * 4 / 2**20)
    assert found.num_basis == 1000
    assert 0.0 < found.grown <= found.peak < 2000.0


def test_memory_needs_a_system_that_tells(monkeypatch, tmp_path):
    monkeypatch.setattr(qsgp_memory, "_STATUS", tmp_path / "none")
    with pytest.raises(ValueError, match="on Linux"):
        qsgp_memory.step_memory(10, SIZES, float32=False)


@pytest.fixture
def problem(rng):
    X = rng.normal(size=(30, 2))
    Y = np.sin(X[:, :1]) + 0.1 * rng.normal(size=(30, 1))
    basis = RandomFourier(gpflow.kernels.SquaredExponential(lengthscales=[1.0, 2.0]), 8)
    gpflow.utilities.set_trainable(basis, False)
    return basis, (tf.constant(X), tf.constant(Y))


def test_the_exact_gradient_and_where_it_vanishes(problem, rng, monkeypatch):
    monkeypatch.setattr(qsgp_variance, "_BLOCK_ROWS", 7)
    basis, data = problem
    Phi, y, mu = basis(data[0]).numpy(), data[1].numpy()[:, 0], rng.normal(size=8)
    gradient = qsgp_variance.exact_gradient(basis, data, NOISE, tf.constant(mu[:, None]))
    expected = Phi.T @ (Phi @ mu - y) / NOISE + mu
    np.testing.assert_allclose(gradient[:, 0], expected, rtol=1e-10)
    best = qsgp_variance.optimal_mean(basis, data, NOISE)
    np.testing.assert_allclose(best[:, 0], oracle.weight_posterior(Phi, y, np.ones(8), NOISE)[0])
    zero = qsgp_variance.exact_gradient(basis, data, NOISE, best)
    np.testing.assert_allclose(zero, np.zeros((8, 1)), atol=1e-9)


@pytest.mark.parametrize("name", list(qsgp_variance.ESTIMATORS))
def test_no_error_is_left_when_everything_is_drawn(problem, rng, name):
    basis, data = problem
    mu = tf.constant(rng.normal(size=(8, 1)))
    exact = qsgp_variance.exact_gradient(basis, data, NOISE, mu).numpy()[:, 0]
    sizes = VarianceSizes(8, 8, 30, 6, repeats=2)
    assert qsgp_variance._error(name, basis, data, NOISE, mu, exact, sizes) < 1e-8
    some = VarianceSizes(8, 4, 30, 6, repeats=2)
    left = qsgp_variance._error(name, basis, data, NOISE, mu, exact, some)
    assert (left < 1e-8) == (name == "tracked")  # which knows all rows of its batch exactly


def test_scaled_gradients_are_exact_on_average(problem, rng):
    basis, data = problem
    mu = tf.constant(rng.normal(size=(8, 1)))
    exact = qsgp_variance.exact_gradient(basis, data, NOISE, mu).numpy()[:, 0]
    model = QSGP(
        basis,
        gpflow.likelihoods.Gaussian(NOISE),
        num_data=30,
        basis_batch_size=3,
        variance_reduction="none",
    )
    model.q_mu.assign(mu)
    step, found = qsgp_variance.gradient_step(model), [[] for _ in range(8)]
    tf.random.set_seed(3)
    for _ in range(600):
        gradient, counts = (part.numpy() for part in step(*data))
        assert counts.sum() == 6
        for i in np.flatnonzero(counts):  # once for each draw that took i
            found[i] += [gradient[i] * 2 * 3 / (8 * counts[i])] * int(counts[i])
    for values, target in zip(found, exact, strict=True):
        assert abs(np.mean(values) - target) < 5.0 * np.std(values) / np.sqrt(len(values))


def test_errors_at_both_places_and_ratios_to_the_first(rng):
    X = rng.normal(size=(60, 2))
    Y = np.sin(X[:, :1]) + 0.1 * rng.normal(size=(60, 1))
    errors = qsgp_variance.gradient_errors(X, Y, VarianceSizes(20, 5, 10, 20, repeats=3))
    assert [e.estimator for e in errors] == list(qsgp_variance.ESTIMATORS)
    literal, anchored = errors[0], errors[3]
    assert anchored.at_prior_draw < literal.at_prior_draw
    assert anchored.at_optimum < literal.at_optimum
    _, rows = qsgp_variance.error_table(errors)
    assert rows[0][3] == rows[0][5] == "1.000"
    assert rows[3][3] == f"{anchored.at_prior_draw / literal.at_prior_draw:.3f}"


def test_rows_are_generated_where_there_is_no_folder(monkeypatch, tmp_path):
    monkeypatch.delenv("GPFLOW_SPARSE_DATA", raising=False)
    name, X, Y = qsgp_variance.benchmark_rows()
    assert (name, X.shape, Y.shape) == ("generated rows", (36_000, 8), (36_000, 1))
    np.testing.assert_allclose(Y.std(), np.sqrt(1.01), rtol=0.02)
    arrays = {"x": X[:20], "y": Y[:20], "test_mask": np.arange(20)[:, None] < 5}
    np.savez(tmp_path / "kin40k.npz", **arrays)
    monkeypatch.setenv("GPFLOW_SPARSE_DATA", str(tmp_path))
    name, X, _ = qsgp_variance.benchmark_rows()
    assert (name, X.shape) == ("kin40k", (15, 8))
    np.testing.assert_allclose(X.std(axis=0), np.ones(8))
