"""One model of every kind that a file must hold: our battery, and all of GPflow's families."""

import gpflow
import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow import functions, inducing_variables, kernels, likelihoods, models
from gpflow.kernels.categorical import Categorical

from gpflow_sparse.bases import Hybrid, KernelDictionary, RandomFourier, SoftInterpolation
from gpflow_sparse.data.standardize import Standardizer
from gpflow_sparse.kernels import LinearMap
from gpflow_sparse.likelihoods import (
    BernoulliLogit,
    GaussianWithKnownVariance,
    HeteroskedasticGaussian,
    Laplace,
    MissingOutputs,
    NegativeBinomial,
    OrderedProbit,
    Ordinal,
    StudentT,
    TrapezoidQuadrature,
    ZeroInflatedPoisson,
)
from gpflow_sparse.mean_functions import Offset
from gpflow_sparse.models import SWSGP, BasisGPR, BasisSVGP, SoftKI
from tests import battery

tfb, tfd = tfp.bijectors, tfp.distributions
N, M, D = 8, 4, 2


def inputs(columns=D, seed=1, rows=N):
    return np.random.default_rng(seed).normal(size=(rows, columns))


def labeled_inputs():
    """The last column says which of two parts a row belongs to."""
    return np.column_stack([inputs(1), np.arange(N) % 2])


def outputs(P=1):
    return np.sin(inputs()[:, :1]) + 0.1 * np.arange(P)


def moved(model, scale=0.1):
    """Off its starting values, so that no special case hides a mistake."""
    rng = np.random.default_rng(4)
    for variable in model.trainable_variables:
        variable.assign_add(scale * rng.normal(size=variable.numpy().shape))
    return model


def svgp(kernel=None, likelihood=None, mean=None, Z=None, P=1):
    """A stock SVGP around the part in question."""
    model = models.SVGP(
        kernels.Matern52() if kernel is None else kernel,
        likelihoods.Gaussian(0.3) if likelihood is None else likelihood,
        inputs(seed=2, rows=M) if Z is None else Z,
        mean_function=mean,
        num_latent_gps=P,
        num_data=100,
    )
    return moved(model)


def hierarchy():
    return [
        kernels.HierarchyNode("root", [0], np.array([[-3.0, 3.0]])),
        kernels.HierarchyNode("leaf", [1], [[0.0, 1.0]], kernels.ActivityCondition({2: 1})),
    ]


def categorical():
    label = kernels.SquaredExponential(active_dims=[1])
    return Categorical(kernels.Matern32(active_dims=[0]), label, 3)


KERNELS = {
    "squared_exponential": lambda: kernels.SquaredExponential(lengthscales=[0.7, 1.9], name="own"),
    "matern12": lambda: kernels.Matern12(active_dims=[1]),
    "matern32": lambda: kernels.Matern32(active_dims=slice(0, 2)),
    "exponential": kernels.Exponential,
    "rational_quadratic": kernels.RationalQuadratic,
    "cosine": lambda: kernels.Cosine(lengthscales=[1.0, 2.0]),
    "arc_cosine": lambda: kernels.ArcCosine(order=2, weight_variances=[1.0, 2.0]),
    "linear": lambda: kernels.Linear(variance=[1.0, 0.5]) + kernels.White(),
    "polynomial": lambda: kernels.Polynomial(degree=2.0) + kernels.White(),
    "constant": lambda: kernels.Constant() + kernels.White(),
    "periodic": lambda: kernels.Periodic(kernels.SquaredExponential(), period=[1.0, 2.0]),
    "linear_map": lambda: LinearMap(kernels.Matern32(lengthscales=[0.7]), [[0.6, 0.8]]),
    "tree": lambda: (kernels.RBF() + kernels.Linear()) * kernels.Matern12() + kernels.Bias(),
}
# Kernels that want inputs, inducing variables or outputs of their own: kernel, Z, P.
SPECIAL = {
    "change_points": lambda: (
        kernels.ChangePoints([kernels.RBF(), kernels.Matern12()], locations=[0.1]),
        inputs(1, seed=2, rows=M),
        1,
    ),
    "coregion": lambda: (
        kernels.RBF(active_dims=[0]) * kernels.Coregion(2, 1, active_dims=[1]),
        labeled_inputs()[:M],
        1,
    ),
    "categorical": lambda: (categorical(), labeled_inputs()[:M], 1),
    "convolutional": lambda: (
        kernels.Convolutional(kernels.RBF(), [3, 3], [2, 2]),
        inducing_variables.InducingPatches(inputs(4, seed=2, rows=M)),
        1,
    ),
    "arc_hierarchical": lambda: (
        kernels.ArcHierarchical(hierarchy(), active_dims=[0, 1, 2]),
        np.abs(inputs(3, seed=2, rows=M)),
        1,
    ),
    "wedge_hierarchical": lambda: (
        kernels.WedgeHierarchical(hierarchy(), active_dims=slice(0, 3)),
        np.abs(inputs(3, seed=2, rows=M)),
        1,
    ),
    "shared_independent": lambda: (
        kernels.SharedIndependent(kernels.RBF(), output_dim=2),
        inducing_variables.SharedIndependentInducingVariables(
            inducing_variables.InducingPoints(inputs(seed=2, rows=M))
        ),
        2,
    ),
    "separate_independent": lambda: (
        kernels.SeparateIndependent([kernels.RBF(), kernels.Matern12()]),
        inducing_variables.SeparateIndependentInducingVariables(
            [inducing_variables.InducingPoints(inputs(seed=s, rows=M)) for s in (2, 3)]
        ),
        2,
    ),
    "linear_coregionalization": lambda: (
        kernels.LinearCoregionalization([kernels.RBF(), kernels.Matern12()], W=np.eye(3, 2)),
        inducing_variables.FallbackSharedIndependentInducingVariables(
            inducing_variables.InducingPoints(inputs(seed=2, rows=M))
        ),
        2,
    ),
    "fallback_separate": lambda: (
        kernels.LinearCoregionalization([kernels.RBF(), kernels.Matern12()], W=np.eye(2)),
        inducing_variables.FallbackSeparateIndependentInducingVariables(
            [inducing_variables.InducingPoints(inputs(seed=s, rows=M)) for s in (2, 3)]
        ),
        2,
    ),
    "multiscale": lambda: (
        kernels.RBF(lengthscales=[1.0, 1.0]),
        inducing_variables.Multiscale(inputs(seed=2, rows=M), np.full((M, D), 0.2)),
        1,
    ),
    "inducing_variable_is_a_variable": lambda: (
        kernels.RBF(),
        inducing_variables.InducingPoints(tf.Variable(inputs(seed=2, rows=M), name="Z")),
        1,
    ),
}
SPECIAL_INPUTS = {
    "change_points": lambda: inputs(1),
    "coregion": labeled_inputs,
    "categorical": labeled_inputs,
    "convolutional": lambda: inputs(9),
    "arc_hierarchical": lambda: np.abs(inputs(3)).round(1),
    "wedge_hierarchical": lambda: np.abs(inputs(3)).round(1),
}


def bijector():
    return tfb.Chain([tfb.Shift(np.float64(0.1)), tfb.Softplus()])


LIKELIHOODS = {  # and the number of latent functions
    "gaussian_scale": (lambda: likelihoods.Gaussian(scale=0.2), 1),
    "gaussian_of_x": (lambda: likelihoods.Gaussian(functions.Polynomial(2, input_dim=2)), 1),
    "gaussian_mc": (likelihoods.GaussianMC, 1),
    "student_t": (lambda: likelihoods.StudentT(scale=0.5, df=4.0), 1),
    "laplace": (lambda: Laplace(0.5), 1),
    "our_student_t": (lambda: StudentT(0.3, df=4.0), 1),
    "our_ordinal": (lambda: Ordinal([-0.5, 0.5]), 1),
    "ordered_probit": (lambda: OrderedProbit(3), 1),
    "known_variance": (GaussianWithKnownVariance, 1),
    "only_known_variance": (lambda: GaussianWithKnownVariance(0), 1),
    "missing_outputs": (lambda: MissingOutputs(likelihoods.Gaussian(0.3)), 2),
    "negative_binomial": (lambda: NegativeBinomial(0.3), 1),
    "zero_inflated": (lambda: ZeroInflatedPoisson(0.2), 1),
    "exponential": (lambda: likelihoods.Exponential(invlink=tf.nn.softplus), 1),
    "gamma": (likelihoods.Gamma, 1),
    "gamma_of_x": (lambda: likelihoods.Gamma(shape=functions.Constant(2.0)), 1),
    "beta": (likelihoods.Beta, 1),
    "bernoulli": (likelihoods.Bernoulli, 1),
    "bernoulli_sigmoid": (lambda: likelihoods.Bernoulli(invlink=tf.sigmoid), 1),
    "bernoulli_bijector": (lambda: likelihoods.Bernoulli(invlink=tfb.NormalCDF()), 1),
    "bernoulli_logit": (BernoulliLogit, 1),
    "bernoulli_trapezoid": (lambda: BernoulliLogit(quadrature=TrapezoidQuadrature(51, 6.0)), 1),
    "poisson": (lambda: likelihoods.Poisson(binsize=0.5), 1),
    "ordinal": (lambda: likelihoods.Ordinal(np.array([-0.5, 0.5])), 1),
    "multi_class": (lambda: likelihoods.MultiClass(3), 3),
    "robust_max": (lambda: likelihoods.MultiClass(3, likelihoods.RobustMax(3, epsilon=0.1)), 3),
    "softmax": (lambda: likelihoods.Softmax(3), 3),
    "switched": (
        lambda: likelihoods.SwitchedLikelihood([likelihoods.Gaussian(), likelihoods.StudentT()]),
        1,
    ),
    "heteroskedastic": (likelihoods.HeteroskedasticTFPConditional, 2),
    "heteroskedastic_gaussian": (HeteroskedasticGaussian, 2),
    "heteroskedastic_laplace": (
        lambda: likelihoods.HeteroskedasticTFPConditional(tfd.Laplace, bijector()),
        2,
    ),
    "quadrature": (
        lambda: likelihoods.Bernoulli(quadrature=gpflow.quadrature.NDiagGHQuadrature(1, 7)),
        1,
    ),
}
MEANS = {
    "zero": functions.Zero,
    "constant": lambda: functions.Constant(0.7),
    "linear": lambda: functions.Linear(np.ones((D, 1)), [0.5]),
    "polynomial": lambda: functions.Polynomial(2, input_dim=D),
    "sum": lambda: functions.Constant(0.7) + functions.Linear(np.ones((D, 1))),
    "product": lambda: functions.Constant(0.7) * functions.Linear(np.ones((D, 1))),
    "offset": lambda: Offset(1) + functions.Constant(),
    "identity": functions.Identity,
    "switched": lambda: functions.SwitchedFunction([functions.Constant(1.0), functions.Zero()]),
    "switched_mean": lambda: functions.SwitchedMeanFunction([functions.Zero(), functions.Zero()]),
}


def internal(kind, *arguments, **options):
    return kind((inputs(), outputs()), *arguments, **options)


def bayesian_gplvm():
    Z = inputs(seed=2, rows=M)
    return models.BayesianGPLVM(
        outputs(3), inputs(), np.full((N, D), 0.1), kernels.RBF(), inducing_variable=Z
    )


def gpr_of_variables():
    X = tf.Variable(inputs(), shape=[None, D], trainable=False)
    Y = tf.Variable(outputs(), shape=[None, 1], trainable=False)
    return models.GPR((X, Y), kernels.RBF())


def shared():
    """One parameter in two kernels, and one kernel twice."""
    kernel, other = kernels.RBF(), kernels.Matern12()
    other.lengthscales = kernel.lengthscales
    return svgp(kernel * other + kernel)


def decorated():
    """Priors, transforms, flags, hyperpriors, unknown shapes and names of all sorts."""
    model = svgp(kernels.RBF() * kernels.Matern32(lengthscales=[1.0, 2.0]))
    first, second = model.kernel.kernels
    one = np.float64(1.0)
    first.variance.prior = tfd.Gamma(2.0 * one, gpflow.Parameter(3.0, transform=tfb.Exp()))
    first.lengthscales = gpflow.Parameter(
        0.4,
        transform=tfb.Sigmoid(0.1 * one, tf.constant(2.0 * one)),
        prior=tfd.Normal(0.0 * one, one),
        prior_on="unconstrained",
        name="between",
    )
    second.variance = gpflow.Parameter(1.5, transform=bijector(), trainable=False)
    model.likelihood.variance.prior = tfd.TransformedDistribution(
        tfd.Normal(0.0 * one, one), tfb.Exp()
    )
    second.lengthscales.prior = tfd.Independent(tfd.LogNormal(np.zeros(2), one), 1)
    model.q_mu = gpflow.Parameter(model.q_mu.numpy(), shape=[None, 1], prior=tfd.Laplace(one, one))
    gpflow.set_trainable(model.inducing_variable, False)
    return model


def in_use(model):
    """After a prediction, in which random Fourier features learn the number of columns."""
    model.predict_f(inputs())
    return model


def standardized():
    model = battery.perturb(battery.MEMBERS["solvegp"].build(num_data=N))
    model.standardizer = Standardizer.fit(10.0 * inputs() + 3.0, 5.0 * outputs(2) - 1.0)
    return model


def softki_standardized():
    model = battery.REGRESSIONS["softki"].build()
    model.standardizer = Standardizer.fit(10.0 * inputs() + 3.0, 5.0 * outputs(2) - 1.0)
    return model


def soft():
    Z = inputs(seed=2, rows=M)
    kernel = kernels.RBF(lengthscales=[0.8, 1.2])
    return SoftInterpolation(kernel, Z, temperature=[0.4, 0.6], tied=True)


def relevance():
    centers = inputs(seed=2, rows=M)
    return KernelDictionary(
        kernels.Matern32(), centers, precision="diagonal", constant=True, initial_precision=0.5
    )


BASES = {
    "orthogonal": lambda: RandomFourier(kernels.Matern32(), 6, orthogonal=True, seed=2),
    "dictionary": lambda: KernelDictionary(kernels.ArcCosine(), inputs(seed=2, rows=M)),
    "relevance": relevance,
    "hybrid": lambda: Hybrid(kernels.Matern52(), inputs(seed=2, rows=M), 6, seed=2),
    "soft": soft,
}


def basis_svgp(make):
    return BasisSVGP(make(), likelihoods.Bernoulli(), num_data=50)


def basis_gpr(make):
    return BasisGPR((inputs(), outputs()), make(), noise_variance=0.2)


MODELS = {
    "gpr": lambda: internal(models.GPR, kernels.RBF()),
    "gpr_of_variables": gpr_of_variables,
    "sgpr": lambda: internal(models.SGPR, kernels.RBF(), inputs(seed=2, rows=M)),
    "gprfitc": lambda: internal(models.GPRFITC, kernels.RBF(), inputs(seed=2, rows=M)),
    "cglb": lambda: internal(models.CGLB, kernels.RBF(), inducing_variable=inputs(rows=M)),
    "vgp": lambda: internal(models.VGP, kernels.RBF(), likelihoods.StudentT()),
    "opper_archambeau": lambda: internal(
        models.VGPOpperArchambeau, kernels.RBF(), likelihoods.StudentT()
    ),
    "gpmc": lambda: internal(models.GPMC, kernels.RBF(), likelihoods.StudentT()),
    "sgpmc": lambda: internal(
        models.SGPMC, kernels.RBF(), likelihoods.StudentT(), inducing_variable=inputs(rows=M)
    ),
    "gplvm": lambda: models.GPLVM(outputs(3), latent_dim=D, X_data_mean=tf.constant(inputs())),
    "bayesian_gplvm": bayesian_gplvm,
    "svgp_diagonal": lambda: models.SVGP(
        kernels.RBF(), likelihoods.Gaussian(), inputs(rows=M), q_diag=True, whiten=False
    ),
    "shared": shared,
    "decorated": decorated,
    "standardized": standardized,
    "softki_standardized": softki_standardized,
}


def special(kernel, Z, P):
    return svgp(kernel, Z=Z, P=P)


BUILDERS = (
    {
        f"battery.{name}": lambda m=m: in_use(battery.perturb(m.build(50)))
        for name, m in battery.MEMBERS.items()
    }
    | {
        f"battery.{name}": lambda m=m: in_use(battery.perturb(m.build()))
        for name, m in battery.REGRESSIONS.items()
    }
    | {f"kernel.{name}": lambda make=make: svgp(make()) for name, make in KERNELS.items()}
    | {f"kernel.{name}": lambda make=make: special(*make()) for name, make in SPECIAL.items()}
    | {
        f"likelihood.{name}": lambda make=make, P=P: svgp(likelihood=make(), P=P)
        for name, (make, P) in LIKELIHOODS.items()
    }
    | {
        f"mean.{name}": lambda make=make: svgp(
            mean=make(), P=2 if make is functions.Identity else 1
        )
        for name, make in MEANS.items()
    }
    | {
        f"model.{name}": lambda make=make: battery.settle(moved(make()))
        for name, make in MODELS.items()
    }
    | {
        f"{build.__name__}.{name}": lambda make=make, build=build: in_use(moved(build(make)))
        for name, make in BASES.items()
        for build in (basis_svgp, basis_gpr)
    }
)


def inputs_of(name):
    """Where to predict with the model of that name."""
    if "switched" in name and name.startswith("mean"):
        return labeled_inputs()
    return SPECIAL_INPUTS.get(name.partition(".")[2], inputs)()


def predictions(model, X):
    """What a user would ask of the model, as one list of arrays; the same draws every time."""
    tf.random.set_seed(11)
    moments = [*model.predict_f(X), *model.predict_y(X)]
    if isinstance(model, SWSGP):
        moments.append(model.prior_kl(X))
    elif hasattr(model, "prior_kl") and not isinstance(model, SoftKI):
        moments.append(model.prior_kl())
    moments.append(model.log_prior_density())
    return [np.asarray(part) for part in moments]
