"""Estimate of the memory of a training run; without TensorFlow."""

from gpflow_sparse.runs.config import RunConfig
from gpflow_sparse.runs.methods import BASIS_METHODS, IMAGE_METHODS, SAMPLED_METHODS

# Entries of the largest tensor of a chunk of patches.
_TABLE = 4_000_000
# Entries of the covariances of a block of rows with their neighbors.
_COVARIANCES = 2**22
# Draws of an exact GP by dual blocks, and bytes of a block of their cosines and of covariances.
_DRAWS, _DRAWN = 64, 500_000_000


def memory_estimate(
    config: RunConfig, num_data: int, input_dim: int, num_latent_gps: int = 1
) -> int:
    """
    Bytes a training run needs beyond TensorFlow itself, to within a factor of two.

    Of an exact GP ten matrices N x N; of gpnn eight times the covariances of a block of rows. Of an
    exact GP by dual blocks eight values for each of the draws and rows,
    and blocks of the draws' cosines and of the covariance. Otherwise data, plus Adam's three copies
    and the gradient of all parameters, plus the live tensors of a step: about ten of size M' x M'
    for the factor and its gradient, and for the batch about ten of size M' x n, two of them per
    output, M' = M + M2. ODVGP factors and multiplies Kuu alone, and has a few tensors of size M2 x
    (M + n + s), s its columns. With a basis of m functions, about twelve of size m x m, and the
    features of a block of rows. With sampled functions, two values and their optimizer slots for
    each, more with dense columns, and about eight tensors of the size of a step's functions at its
    rows. With neighbors, two values and their slots for each point, and about fifteen tensors H x H
    for each row. Hidden layers of deep models are counted alike. For images, in each layer about
    ten tensors M' x M', six for each set and output, and eight of the covariances of a chunk of
    patches with all M'.
    """
    size = 4 if config.float32 else 8
    total, batch = sum(config.sizes), min(config.batch_size, num_data)
    if config.method == "exact":
        return int(size * 10 * num_data**2)
    if config.method == "gpnn":
        return int(size * (num_data * (input_dim + 1) + 8 * _COVARIANCES))
    if config.method == "dual":
        return int(8 * num_data * (8 * _DRAWS * num_latent_gps + 4 * input_dim) + _DRAWN)
    if config.method in SAMPLED_METHODS:
        head = config.num_inducing if config.basis == "hybrid" else config.num_dense_columns or 0
        columns = 2 + (head if config.covariance == "chevron" else 0)
        held = 2 * columns * total * num_latent_gps + 4 * head**2
        drawn = head + 2 * min(config.basis_batch_size, total)
        rows = batch + config.num_support
        return int(size * (num_data * (input_dim + 1) + held + 8 * rows * drawn))
    if config.method in BASIS_METHODS:
        block = 0 if config.method == "basis_svgp" else 4 * 2**23
        features = max(block, 4 * total * batch * num_latent_gps)
        return int(size * (num_data * (input_dim + 1) + 12 * total**2 * num_latent_gps + features))
    if config.has_neighbors:
        H = min(config.num_neighbors or total, total)
        held, entries = total * (input_dim + 8 * num_latent_gps), 15 * H**2
        if config.method == "solvegp":  # features of the neighbors, and of all points to predict
            M = config.num_inducing
            held += min(config.num_orthogonal, num_data) * M + 20 * M**2
            entries += 6 * H * M
        return int(size * (num_data * (input_dim + 1) + held + batch * entries))
    if config.method in IMAGE_METHODS:
        squares = sum(m * m for m in config.sizes)
        layer = 10 * total**2 + 6 * num_latent_gps * squares
        table = min(_TABLE, batch * input_dim * total)
        return int(size * (num_data * (input_dim + 1) + config.num_layers * (layer + 8 * table)))
    return _of_points(config, num_data, input_dim, num_latent_gps)


def _of_points(config: RunConfig, num_data: int, input_dim: int, num_latent_gps: int) -> int:
    """That of minibatches and inducing points which every row sees."""
    size = 4 if config.float32 else 8
    total, batch = sum(config.sizes), min(config.batch_size, num_data)
    parameters = total * input_dim + sum(num_latent_gps * (m * m / 2 + m) for m in config.sizes)
    factored = config.num_inducing if config.method == "odvgp" else total
    step = 10 * factored**2 + (8 + 2 * num_latent_gps) * factored * batch
    if config.method == "odvgp":
        columns = config.num_columns or config.num_orthogonal
        step += 4 * config.num_orthogonal * (config.num_inducing + batch + columns)
        parameters -= num_latent_gps * config.num_orthogonal**2 / 2
    if config.method == "deep":  # hidden layers have a function for each column
        M, hidden = config.num_hidden_inducing, config.num_layers - 1
        parameters += hidden * input_dim * (M**2 / 2 + 2 * M)
        step += hidden * (10 * M**2 + (8 + 2 * input_dim) * M * batch)
    return int(size * (num_data * (input_dim + 1) + 4 * parameters + step))
