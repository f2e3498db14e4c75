"""Fixtures for all tests, the cases that wait for the nightly tier, and the slice of a day."""

import datetime
import functools
import gc
import os
import signal
import sys
import typing
import zlib

# Threads of OpenMP and of NumPy, which reads this too, wait busily: they starve those of TensorFlow
# and of the other worker.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import check_shapes
import numpy as np
import pytest

gc.disable()  # until all tests are imported: modules leave next to nothing to collect
check_shapes.set_rewrite_docstrings(None)  # of GPflow's functions, which takes 2 s

if sys.version_info < (3, 12):
    # In every `isinstance`, of which TensorFlow has thousands in a test, Python looks for the
    # members of a protocol again: 28 microseconds in place of 6.
    typing._get_protocol_attrs = functools.cache(typing._get_protocol_attrs)

import gpflow  # noqa: E402

# New objects between two searches for garbage; Python's default is 700.
_GARBAGE_THRESHOLD = 50_000

# Files whose tests run over many models, methods or kinds of input: the default tier takes one case
# in so many of each test, in the order of a hash of the case's name, so that most models meet some
# tests and a new test changes nothing for the others. The nightly tier takes all cases.
THINNED = {
    "test_basis.py": 3,
    "test_basis_features.py": 5,
    "test_battery.py": 32,
    "test_calibration.py": 30,
    "test_calls.py": 2,
    "test_checkpoints.py": 27,
    "test_chevron.py": 4,
    "test_cli.py": 8,
    "test_convolutional.py": 2,
    "test_counters.py": 2,
    "test_deep.py": 7,
    "test_diagnosis.py": 10,
    "test_diagnosis_advice.py": 3,
    "test_eigensystems.py": 3,
    "test_exact_likelihood.py": 2,
    "test_exporting.py": 8,
    "test_fingerprints.py": 30,
    "test_fit.py": 5,
    "test_fourier.py": 8,
    "test_function_draws.py": 5,
    "test_gpflow_calls.py": 5,
    "test_gpflow_users.py": 5,
    "test_grid_eigenfunctions.py": 5,
    "test_grief.py": 5,
    "test_grief_weights.py": 3,
    "test_guard.py": 5,
    "test_hybrid.py": 7,
    "test_input_gradients.py": 32,
    "test_layers.py": 2,
    "test_likelihoods.py": 4,
    "test_local_variance.py": 3,
    "test_matrix.py": 4,
    "test_memory.py": 8,
    "test_mixture.py": 3,
    "test_mixture_likelihood.py": 2,
    "test_multioutput.py": 8,
    "test_nearest_neighbor.py": 5,
    "test_neighbor.py": 3,
    "test_neighbors.py": 2,
    "test_optimizers.py": 5,
    "test_orthogonal.py": 4,
    "test_paper_models.py": 14,
    "test_paper_pages.py": 4,
    "test_patches.py": 3,
    "test_pathwise.py": 3,
    "test_precision.py": 2,
    "test_qsgp.py": 9,
    "test_qsgp_variance.py": 5,
    "test_refusals.py": 2,
    "test_repeated_rows.py": 2,
    "test_report.py": 2,
    "test_residual_bounds.py": 5,
    "test_round_trip.py": 24,
    "test_rounds.py": 7,
    "test_row_weights.py": 3,
    "test_rvm.py": 3,
    "test_saving.py": 3,
    "test_site_vgp.py": 3,
    "test_soft_interpolation.py": 8,
    "test_softki.py": 7,
    "test_solvegp.py": 2,
    "test_solvegpr.py": 7,
    "test_sparse.py": 5,
    "test_standardize.py": 4,
    "test_starting.py": 6,
    "test_starts.py": 2,
    "test_stationary.py": 5,
    "test_steps.py": 7,
    "test_streaming.py": 4,
    "test_sub_sampled.py": 5,
    "test_subsampling.py": 3,
    "test_swsgp.py": 8,
    "test_swsgp_chain.py": 2,
    "test_swsgp_optimum.py": 3,
    "test_swsgp_steps.py": 5,
    "test_swsgp_union.py": 3,
    "test_tutorials.py": 5,
    "test_type_one.py": 3,
    "test_variable_data.py": 24,
    "test_weights.py": 2,
}
# Cases of these tests that take seconds, which are nightly where others of the test do not.
SLOW_CASES = {
    "test_gradients_equal_central_differences[one]",
    "test_predictions_are_those_of_the_same_model_in_original_units[1]",
    "test_a_weight_counts_as_equal_rows_and_weight_zero_as_none[SparseGPClassifier]",
    "test_the_start_is_near_the_model_of_one_layer[3]",
    "test_factors_are_those_of_naive_loops[repeated rows]",
    "test_a_batch_that_is_not_finite_moves_nothing[dense-diag]",
    "test_assigned_rows_count_at_the_next_evaluation[grief likelihood]",
    "test_trained_weights_and_their_statistics_come_back[grief_rotated]",
    "test_predictions_are_those_of_the_mixture[rotated]",
    "test_one_set_equals_gpflow_on_shared_points[separate]",
    "test_values_and_gradients_compiled_by_xla_equal_eager_ones[solvegp_located]",
    "test_every_method_trains_and_its_run_is_scored_again[solvegpr]",
    "test_an_example_prints_numbers_that_show_it_works_and_draws[mixture]",
    "test_a_model_with_log_odds_of_trees_is_saved_and_exported[3]",
    "test_a_killed_run_ends_with_the_same_bits[swsgp_chain]",
    "test_a_killed_run_ends_with_the_same_bits[swsgp_union]",
    "test_counts_of_thousands_are_fitted_in_few_steps[deep]",
    "test_a_second_calibration_that_is_interrupted_leaves_the_first[svgp]",
    "test_the_temperature_of_classes_is_that_of_the_oracle[3]",
    "test_a_saved_model_is_calibrated[deep]",
}
# Parts of the nightly tier, of which CI runs one a day.
NUM_SLICES = 20


def day_number(text: str) -> int:
    return datetime.date.today().toordinal() if text == "today" else int(text)


def pytest_addoption(parser: pytest.Parser) -> None:
    text = f"run one in {NUM_SLICES} of the selected tests: 'today', or the number of a day"
    parser.addoption("--slice", type=day_number, metavar="DAY", help=text)


def is_of_day(nodeid: str, day: int) -> bool:
    return (zlib.crc32(nodeid.encode()) + day) % NUM_SLICES == 0


def pytest_configure() -> None:
    """Tests that interrupt a run also work where the tests were started with SIGINT ignored."""
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the cases that the default tier leaves out; of every test at least one case stays."""
    cases: dict[str, list[pytest.Item]] = {}
    for item in items:
        if item.name in SLOW_CASES:
            item.add_marker(pytest.mark.nightly)
        elif item.path.name in THINNED:
            cases.setdefault(item.nodeid.partition("[")[0], []).append(item)
    for found in cases.values():
        found.sort(key=lambda item: zlib.crc32(item.nodeid.encode()))
        for item in found[max(1, len(found) // THINNED[found[0].path.name]) :]:
            item.add_marker(pytest.mark.nightly)
    day = config.getoption("slice")
    if day is not None:
        config.hook.pytest_deselected(items=[i for i in items if not is_of_day(i.nodeid, day)])
        items[:] = [item for item in items if is_of_day(item.nodeid, day)]


def pytest_collection_finish() -> None:
    """The millions of objects of imported modules are not searched for garbage."""
    gc.freeze()
    gc.set_threshold(_GARBAGE_THRESHOLD)
    gc.enable()


@pytest.fixture(autouse=True)
def equal_random_numbers() -> None:
    """Estimators without ``random_state`` draw from NumPy's generator, whatever ran before."""
    np.random.seed(0)  # noqa: NPY002, theirs


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(20)


@pytest.fixture(params=["float64", "float32"])
def float_type(request: pytest.FixtureRequest):
    """Run the test in both precisions, with GPflow's default float set around it."""
    dtype = np.dtype(request.param).type
    with gpflow.config.as_context(gpflow.config.Config(float=dtype)):
        yield dtype
