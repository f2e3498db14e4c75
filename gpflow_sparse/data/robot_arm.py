"""A simulated robot arm: a smooth, nonlinear regression problem of any size and known noise."""

import numpy as np

TARGET = (0.4, 0.2, 0.3)
"""The fixed point, in meters in the base frame, whose distance from the tip is the output."""

_TAPER = 0.85
_TWISTS = (np.pi / 2, -np.pi / 2, 0.0)


def link_geometry(num_links: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    r"""Denavit-Hartenberg constants of the arm.

    Link :math:`i` (from 0 at the base) reaches :math:`r_i \propto 0.85^i` meters, scaled so that
    the reaches sum to 1 m. Its length is :math:`a_i = 0.96\,r_i` and its offset along the joint
    axis :math:`d_i = 0.28\,r_i`, so that :math:`a_i^2 + d_i^2 = r_i^2`. The twists
    :math:`\alpha_i` repeat +90, -90, 0 degrees.

    :param num_links: the number of revolute joints, at least 1.
    :return: lengths a [num_links] and offsets d [num_links] in meters, twists alpha [num_links]
        in radians.
    """
    reach = _TAPER ** np.arange(num_links)
    reach = reach / reach.sum()
    return 0.96 * reach, 0.28 * reach, np.resize(np.array(_TWISTS), num_links)


def tip_position(angles: np.ndarray) -> np.ndarray:
    r"""Positions of the tip for rows of joint angles (forward kinematics).

    With :math:`R_z, R_x` rotations, link :math:`i` maps a point :math:`p` of its own frame to the
    frame before it by :math:`R_z(\theta_i)\,((a_i, 0, d_i)^T + R_x(\alpha_i)\,p)`; the tip is the
    origin of the last frame. See :func:`link_geometry` for the constants.

    :param angles: joint angles in radians [N, num_links]; column 0 is the joint at the base.
    :return: positions in meters in the frame of the base [N, 3].
    :raises ValueError: unless `angles` is a finite matrix with at least one column.
    """
    angles = np.asarray(angles, dtype=np.float64)
    if angles.ndim != 2 or angles.shape[1] == 0:
        raise ValueError(
            f"angles must have shape [N, num_links], got {angles.shape}; "
            "use angles[None, :] for one pose"
        )
    if not np.isfinite(angles).all():
        raise ValueError("angles must be finite, got NaN or infinity; drop those rows")
    lengths, offsets, twists = link_geometry(angles.shape[1])
    x, y, z = np.zeros((3, len(angles)))
    # From the tip to the base every link moves one point per row, which spares the product of
    # N x num_links rotation matrices.
    links = list(zip(angles.T, lengths, offsets, twists, strict=True))
    for theta, a, d, alpha in reversed(links):
        y, z = np.cos(alpha) * y - np.sin(alpha) * z, np.sin(alpha) * y + np.cos(alpha) * z
        x, z = x + a, z + d
        x, y = np.cos(theta) * x - np.sin(theta) * y, np.sin(theta) * x + np.cos(theta) * y
    return np.stack([x, y, z], axis=1)


def robot_arm(
    num_data: int = 5000,
    num_links: int = 8,
    *,
    noise_std: float = 0.01,
    angle_range: float = np.pi / 2,
    seed: int = 0,
) -> tuple[np.ndarray, np.ndarray]:
    """Distances between the tip of a robot arm of rotating joints and a fixed target point.

    The arm reaches 1 m when stretched out (:func:`link_geometry`), and the target is
    :data:`TARGET`. This is the kind of simulator behind the kin8nm and kin40k data sets; it is not
    a copy of either, and results on it cannot be compared with results on them.

    :param num_data: the number of rows N.
    :param num_links: the number of joints, which is the input dimension.
    :param noise_std: standard deviation in meters of the Gaussian noise added to the distance; a
        tip that nearly touches the target can therefore have a slightly negative output.
    :param angle_range: joint angles are uniform in [-angle_range, angle_range], in radians.
    :param seed: seed of the NumPy generator that draws angles and noise.
    :return: X [N, num_links] joint angles in radians, Y [N, 1] distances in meters.
    :raises ValueError: for a count below 1, a negative noise, or a range outside (0, pi].
    """
    for name, count in (("num_data", num_data), ("num_links", num_links)):
        if isinstance(count, bool) or not isinstance(count, (int, np.integer)) or count < 1:
            raise ValueError(f"{name} must be an integer of at least 1, got {count!r}")
    if not 0 <= noise_std < np.inf:
        raise ValueError(f"noise_std must be finite and not negative (meters), got {noise_std!r}")
    if not 0 < angle_range <= np.pi:
        raise ValueError(f"angle_range must be in (0, pi] radians, got {angle_range!r}")
    rng = np.random.default_rng(seed)
    X = rng.uniform(-angle_range, angle_range, size=(num_data, num_links))
    distance = np.linalg.norm(tip_position(X) - np.array(TARGET), axis=1, keepdims=True)
    return X, distance + noise_std * rng.standard_normal((num_data, 1))
