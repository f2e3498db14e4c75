"""MD22: potential energies of molecules, from the positions of all their atoms."""

from pathlib import Path

import numpy as np

from gpflow_sparse.data.npz import read_npz

__all__ = ["MD22", "MD22_URL", "position_names", "read_md22"]

MD22_URL = "https://www.quantum-machine.org/gdml/repo/datasets"
"""Where its authors keep the files, one ``NAME.npz`` for each name of :data:`MD22`. NequIP
downloads from here by http; we take https, since there are no checksums to tell a file that was
changed on its way. Unverified: nothing has been downloaded with it yet."""

MD22 = {
    "md22_Ac-Ala3-NHMe": (85109, 42),
    "md22_DHA": (69753, 56),
    "md22_stachyose": (27272, 87),
    "md22_AT-AT": (20001, 60),
    "md22_AT-AT-CG-CG": (10153, 118),
    "md22_buckyball-catcher": (6102, 148),
    "md22_double-walled_nanotube": (5032, 370),
}
"""Rows and atoms by name. Chmiela et al., "Accurate global machine learning force fields for
molecules with hundreds of atoms", Science Advances 9 (2023)."""


def read_md22(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Read positions and energies; the forces and everything else in the file are left alone.

    :param path: an .npz file with R, positions [N,A,3] in Angstrom, and E, energies [N] or [N,1]
        in kcal/mol.
    :return: X [N,3A], atom by atom, and Y [N,1], both float64.
    :raises ValueError: for a file that is not such a one.
    """
    arrays = read_npz(path, ("R", "E"))
    if sorted(arrays) != ["E", "R"]:
        raise ValueError(f"{path}: expected the arrays R and E, got {sorted(arrays)} of them")
    R, E = arrays["R"], arrays["E"]
    if R.dtype.kind != "f" or E.dtype.kind != "f":
        raise ValueError(f"{path}: R and E must be floating, got {R.dtype} and {E.dtype}")
    if R.ndim != 3 or R.shape[2] != 3 or E.shape not in ((len(R),), (len(R), 1)):
        raise ValueError(
            f"{path}: expected R [N,A,3] and E [N] or [N,1], got {R.shape} and {E.shape}"
        )
    X, Y = R.reshape(len(R), -1).astype(np.float64), E.reshape(-1, 1).astype(np.float64)
    if not (np.isfinite(X).all() and np.isfinite(Y).all()):
        raise ValueError(f"{path}: R and E must be finite, got NaN or infinity")
    return X, Y


def position_names(num_columns: int) -> tuple[str, ...]:
    """Names of the columns of X: three for every atom."""
    return tuple(f"atom_{i // 3}_{'xyz'[i % 3]}_angstrom" for i in range(num_columns))
