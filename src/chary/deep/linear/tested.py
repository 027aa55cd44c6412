"""The residual test of linear worlds that learn inside JAX, and what the promise leans on after it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from chary.deep.options import DeepOptions
from chary.linear.algebra import steps_left
from chary.linear.features import Features
from chary.linear.residuals import Misfit, misfit
from chary.linear.worlds import Coefficients, Steps
from chary.standing import Grounds

if TYPE_CHECKING:
    from chary.deep.linear.learner import LinearState


def misfit_of(options: DeepOptions, state: LinearState) -> Misfit:
    """Return the residual test of the last plan, on the transitions that it was not made from."""
    model, d = options.linear, state.frequency.shape[0]
    assert model is not None
    held = np.asarray(state.held.rows)[np.asarray(state.held.priority) >= 0.0]
    steps = Steps(
        held[:, :d],
        held[:, 2 * d].astype(int),
        held[:, 2 * d + 1],
        held[:, d : 2 * d],
        held[:, 2 * d + 2] > 0,
        held[:, 2 * d + 3].astype(int),
        np.zeros(len(held), dtype=bool),
    )
    theta = np.concatenate([np.asarray(state.plan.theta), np.asarray(state.theta)], axis=2)
    weight = np.array(steps_left(len(theta), options.discount))
    values = Coefficients(theta, np.zeros((0, 0, 0, 0)), model.low * weight, model.high * weight)
    frequency, phase = np.asarray(state.plan.frequency), np.asarray(state.phase)
    features = Features("fourier", d, model.features, frequency, phase, float(state.scale))
    return misfit(steps, values, features, model, options.discount)


def grounds(options: DeepOptions, state: LinearState) -> Grounds:
    """Return what the promise leans on, with the result of the residual test."""
    found = misfit_of(options, state)
    if found.found:
        return replace(options.grounds, contradicted=found.describe())
    return replace(options.grounds, also=(*options.grounds.also, found.describe()))
