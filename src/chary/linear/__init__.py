"""Linear worlds: posterior worlds for vectors as observations, by weighted regressions on fixed features.

Needs nothing but the core install. Training on an environment inside JAX, next to networks and by the same
judge, is `DeepOptions(learner="linear")` of `chary.deep`.
"""

from chary.linear.agent import LinearAgent
from chary.linear.features import Features, fourier, one_hot, own
from chary.linear.options import LinearModel, LinearOptions
from chary.linear.residuals import Misfit

__all__ = ["Features", "LinearAgent", "LinearModel", "LinearOptions", "Misfit", "fourier", "one_hot", "own"]
