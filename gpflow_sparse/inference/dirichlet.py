"""Classes as regression: labels as noisy observations of latent functions, one for each class.

Milios, Camoriano, Michiardi, Rosasco and Filippone, "Dirichlet-based Gaussian Processes for
Large-scale Calibrated Classification" (NeurIPS 2018, arXiv:1805.10915). With ``alpha_c = eps + [y =
c]``, the parameters of a Dirichlet distribution after one label, log-normal approximations of its
Gamma variables are Gaussian observations of f_c, where softmax(f) are the probabilities,

    s2_c = log(1 / alpha_c + 1),        t_c = log(alpha_c) - s2_c / 2.
"""

import tensorflow as tf


def dirichlet_observations(
    labels: tf.Tensor, num_classes: int, concentration: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """
    Observations t and their noise variances s2, ``[N, C]`` each.

    :param labels: integers ``[N]``.
    :param concentration: eps, a positive scalar.
    """
    dtype = concentration.dtype
    alpha = concentration + tf.one_hot(labels, num_classes, dtype=dtype)
    noise = tf.math.log(1.0 / alpha + 1.0)
    return tf.math.log(alpha) - 0.5 * noise, noise
