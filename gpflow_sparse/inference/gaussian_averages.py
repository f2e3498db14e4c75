"""Expected log densities of Laplace and Student's t noise under a Gaussian ``f``, and log densities
of the sum of ``f`` and the noise.

For Laplace noise both are in closed form. For Student's t noise they are mixtures over scales: with
``d = y - E[f]``, ``v = Var[f]``, scale ``s`` and ``nu`` degrees of freedom,

    log(1 + x^2 / a^2) = int_0^inf (1 - exp(-l x^2 / a^2)) exp(-l) / l dl,        a^2 = nu s^2,
    t_nu(x / s) / s    = int_0^inf Gamma(l | nu / 2, nu / 2) N(x | 0, s^2 / l) dl,

and the expectations of both over ``x ~ N(d, v)`` are in closed form under the integral. In
``u = log l`` the integrands are analytic in a strip whose width does not depend on d, v and s, so
that the trapezoid rule converges geometrically. Gauss-Hermite quadrature over ``f`` fails for
densities that are narrow compared with the standard deviation of ``f``.
"""

import math

import tensorflow as tf
import tensorflow_probability as tfp

_NODES = 121
# Minus the logarithm of the neglected tails at both ends, relative to the peak.
_NEGLIGIBLE = 27.0


def folded_mean(d: tf.Tensor, variance: tf.Tensor) -> tf.Tensor:
    """``E |x|`` for ``x ~ N(d, variance)``; ``|d|`` at variance 0, derivatives included."""
    s, positive = deviation(variance)
    s = tf.where(positive, s, tf.ones_like(s))
    t = d / s
    spread = s * math.sqrt(2.0 / math.pi) * tf.exp(-0.5 * tf.square(t))
    return tf.where(positive, spread + d * tf.math.erf(t * math.sqrt(0.5)), tf.abs(d))


def log_normal_laplace(d: tf.Tensor, variance: tf.Tensor, b: tf.Tensor) -> tf.Tensor:
    """
    Log density at ``d`` of the sum of a normal and a Laplace variable, both of mean 0.

    With ``t = |d| / s`` and ``u = s / b`` it is ``1 / (2 b)`` times

        exp(u^2 / 2 - u t) Phi(t - u)  +  exp(u^2 / 2 + u t) Phi(-t - u),

    where ``exp(u^2 / 2 + u t) Phi(-t - u) = exp(-t^2 / 2) erfcx((t + u) / sqrt 2) / 2``, and so for
    the first term if t < u: neither can overflow, and no large numbers cancel.
    """
    s, positive = deviation(variance)
    s = tf.where(positive, s, tf.ones_like(s))
    t, u = tf.abs(d) / s, s / b
    above = t > u
    tail = -0.5 * tf.square(t) - math.log(2.0)
    gap = (t - u) * math.sqrt(0.5)
    # arguments of unused forms are replaced, since NaN in them would reach the gradient
    log_Phi = tf.math.log1p(-0.5 * tf.math.erfc(tf.where(above, gap, tf.zeros_like(gap))))
    log_erfcx = tf.math.log(tfp.math.erfcx(tf.where(above, tf.zeros_like(gap), -gap)))
    near = tf.where(above, u * (0.5 * u - t) + log_Phi, tail + log_erfcx)
    far = tail + tf.math.log(tfp.math.erfcx((t + u) * math.sqrt(0.5)))
    mixed = tf.where(positive, tf.reduce_logsumexp([near, far], axis=0), -tf.abs(d) / b)
    return mixed - tf.math.log(2.0 * b)


def deviation(variance: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Square root, with value and gradient 0 unless the variance is positive, and that mask."""
    positive = variance > 0.0
    root = tf.sqrt(tf.where(positive, variance, tf.ones_like(variance)))
    return tf.where(positive, root, tf.zeros_like(root)), positive


def expected_student_t(d: tf.Tensor, v: tf.Tensor, s: tf.Tensor, nu: float) -> tf.Tensor:
    """
    ``E[log t_nu((d + sqrt(v) z) / s) / s]`` for a standard normal z; finite gradients at v = 0 too.

    :param d: any shape; ``v`` and ``s`` broadcast against it.
    :return: of the shape of d; absolute error below 1e-11 ``(nu + 1)`` in float64.
    """
    a = math.sqrt(nu) * s
    q, r = tf.square(d / a), v / tf.square(a)
    # Up to q and r of order 1 / l, the integrand is (q + r) l; the rest of that tail is summed.
    low = -tf.math.log1p(tf.stop_gradient(q + r)) - 0.5 * _NEGLIGIBLE
    u, h = _nodes(low, tf.fill(tf.shape(low), tf.constant(3.6, low.dtype)))
    x = tf.exp(u)
    spread = 1.0 + 2.0 * r * x
    terms = -tf.math.expm1(-0.5 * tf.math.log(spread) - q * x / spread) * tf.exp(-x)
    total = h * (tf.reduce_sum(terms, axis=0) + terms[0] / tf.math.expm1(h))
    return _log_constant(nu) - tf.math.log(s) - 0.5 * (nu + 1.0) * total


def log_normal_student_t(d: tf.Tensor, v: tf.Tensor, s: tf.Tensor, nu: float) -> tf.Tensor:
    """
    Log density at d of the sum of a normal variable of variance v and a Student's t of scale s.

    :param d: any shape; ``v`` and ``s`` broadcast against it.
    :return: of the shape of d; absolute error below 1e-8 in float64, or 1e-8 of the value where
        that is larger (nu from 0.5 to 1000, s from 1e-3 to 5 and v up to 25, measured).
    """
    alpha = 0.5 * nu
    low, high = _range(tf.stop_gradient(d), tf.stop_gradient(v), tf.stop_gradient(s), nu)
    u, h = _nodes(low, high)
    variance = v + tf.square(s) * tf.exp(-u)
    constant = alpha * math.log(alpha) - alpha - math.lgamma(alpha) - 0.5 * math.log(2.0 * math.pi)
    log_terms = alpha * (u - tf.math.expm1(u)) - 0.5 * (
        tf.math.log(variance) + tf.square(d) / variance
    )
    # below the lowest node the integrand falls by exp((alpha + 1/2) h) from node to node
    rest = log_terms[:1] - tf.math.log(tf.math.expm1((alpha + 0.5) * h))
    total = tf.reduce_logsumexp(tf.concat([log_terms, rest], axis=0), axis=0)
    return constant + total + tf.math.log(h)


def _log_constant(nu: float) -> float:
    """Logarithm of the normalizing constant of the standard Student's t density."""
    return math.lgamma(0.5 * (nu + 1.0)) - math.lgamma(0.5 * nu) - 0.5 * math.log(nu * math.pi)


def _nodes(low: tf.Tensor, high: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Evenly spaced nodes ``[K, ...]`` and their spacings ``[...]``."""
    return tf.linspace(low, high, _NODES), (high - low) / (_NODES - 1.0)


def _range(d: tf.Tensor, v: tf.Tensor, s: tf.Tensor, nu: float) -> tuple[tf.Tensor, tf.Tensor]:
    """
    Ends in ``u = log l`` of the range in which the density is not negligible.

    Every mode is between ``log((nu + 1) / (nu + max(q, 1)))`` with ``q = d^2 / s^2``, where the
    prior of the scale and an outlier balance, and ``log(1 + 1 / nu)``. With ``t = d^2 / (4 nu v)``
    below 1, none is below ``log(1 - t)`` either, since the derivative of the log density of d is at
    most ``d^2 / (8 v)``, which keeps the range short for many degrees of freedom.
    """
    alpha = 0.5 * nu
    q = tf.square(d / s)
    far = math.sqrt(2.0 * _NEGLIGIBLE / (alpha + 0.5)) + _NEGLIGIBLE / (alpha + 1.0)
    low = tf.math.log((nu + 1.0) / (nu + tf.maximum(q, 1.0))) - far
    t = tf.minimum(tf.square(d) / (4.0 * nu * tf.maximum(v, tf.constant(1e-30, v.dtype))), 0.5)
    slope = alpha * (1.0 - t)
    near = tf.math.log1p(-t) - _NEGLIGIBLE / slope - tf.sqrt(2.0 * _NEGLIGIBLE / slope)
    low = tf.where(t < 0.5, tf.maximum(low, near), low)
    beyond = _NEGLIGIBLE / alpha + math.sqrt(2.0 * _NEGLIGIBLE / alpha)
    high = math.log1p(1.0 / nu) + math.log1p(beyond)
    return low, tf.fill(tf.shape(low), tf.constant(high, low.dtype))
