"""Starting values of inducing patches and filters, from images as arrays."""

import gpflow
import numpy as np

from gpflow_sparse.covariances.patch_grids import PatchGrid
from gpflow_sparse.initialization.inducing_inputs import kmeans

# Number of random patches per center of k-means.
_PER_CENTER = 100


def random_patches(
    rows: np.ndarray, grid: PatchGrid, count: int, rng: np.random.Generator
) -> np.ndarray:
    """
    Distinct patches ``[n, L]`` at random locations of random images; n is at most ``count``.

    :param rows: images ``[N, D]``.
    """
    pixels = grid.pixels()  # [P, L]
    chosen = rng.permutation(len(rows) * len(pixels))[:count]
    image, place = np.divmod(chosen, len(pixels))
    return np.unique(rows[image[:, None], pixels[place]], axis=0)


def patch_centers(
    rows: np.ndarray, grid: PatchGrid, sizes: tuple[int, ...], rng: np.random.Generator
) -> list[np.ndarray]:
    """
    Centers of patches by k-means, split at random: one ``[M_b, L]`` for each size.

    :param rows: images ``[N, D]``.
    :raises ValueError: if there are fewer distinct patches.
    """
    patches = random_patches(rows, grid, _PER_CENTER * sum(sizes), rng)
    if len(patches) < sum(sizes):
        raise ValueError(
            f"num_inducing and num_orthogonal must be at most {len(patches)} together, the "
            f"distinct patches in the sample of the images; got {sum(sizes)}."
        )
    centers = kmeans(patches, sum(sizes), seed=int(rng.integers(2**31)))
    centers = rng.permutation(centers).astype(gpflow.default_float())
    return np.split(centers, np.cumsum(sizes)[:-1])


def glorot_filters(
    rows: np.ndarray, grid: PatchGrid, num_outputs: int, rng: np.random.Generator
) -> np.ndarray:
    """
    Uniform filters ``[L, G]`` between plus and minus ``sqrt(6 / (h w (C + G)))``, each then scaled
    to a response of variance 1: Glorot and Bengio, "Understanding the difficulty of training deep
    feedforward neural networks" (2010).

    :param rows: images ``[N, D]``.
    :param num_outputs: G.
    """
    h, w = grid.patch_shape
    limit = np.sqrt(6.0 / (h * w * (grid.image_shape[2] + num_outputs)))
    filters = rng.uniform(-limit, limit, size=(grid.patch_length, num_outputs))
    responses = random_patches(rows, grid, 10_000, rng) @ filters
    scale = responses.std(axis=0)
    scaled = filters / np.where(scale > 0.0, scale, 1.0)
    return scaled.astype(gpflow.default_float())


def random_locations(grid: PatchGrid, count: int, rng: np.random.Generator) -> np.ndarray:
    """Rows and columns ``[count, 2]``, uniform over the grid of patches."""
    last = np.array(grid.shape) - 1.0
    return (rng.random((count, 2)) * last).astype(gpflow.default_float())
