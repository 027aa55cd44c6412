"""The verdict of a preview: one configuration, what it would buy, and what it leans on."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from chary.agents.chary_ucbvi import CharyUCBVI
from chary.agents.protocol import POSTERIOR
from chary.arrays import Floats
from chary.preview.analysis import Analysis
from chary.preview.credible import interval_of, value_of
from chary.preview.options import PreviewOptions, Source
from chary.preview.paste import as_command, as_python, as_toml
from chary.preview.problem import Problem
from chary.preview.result import BudgetOutcome, Verdict
from chary.preview.words import amount, budget, interval, percent
from chary.standing import Grounds

# Proved bounds are recommended where they try at least this share of what posterior worlds would.
COMPARABLE = 0.5
# The smallest budget that allows this share of what the largest one does is recommended.
MOST_OF_IT = 0.75
RULE = "strict"


def grounds_of(spec: CharyUCBVI, problem: Problem) -> Grounds:
    """Return what the promise of an agent leans on, with what was read off the log."""
    log = problem.log
    return replace(
        spec.grounds(problem.setting),
        logs=True,
        dropped=log.dropped is not None,
        discretised=log.discretised,
        inferred=problem.inferred,
        own=None if problem.own is None else problem.own.role,
    )


def decide(problem: Problem, options: PreviewOptions, own: Analysis, beside: Analysis | None) -> Verdict:
    """Return the verdict: posterior worlds where they fit, proved bounds where these try as much.

    Args:
        problem: The log and its setting.
        options: The options of the preview.
        own: The analysis by its own family.
        beside: That by the other family, with rule strict; None where it was not made.
    """
    posterior = options.bonus == POSTERIOR
    worlds, bounds = (own, beside) if posterior else (beside, own)
    found = {
        POSTERIOR: () if worlds is None else _strict(worlds.outcomes),
        "kl" if posterior else str(options.bonus): () if bounds is None else _strict(bounds.outcomes),
    }
    family = POSTERIOR if worlds is not None else next(name for name in found if name != POSTERIOR)
    outcome = _chosen(found[family])
    proved = _proved(found, options, worlds, bounds, outcome)
    if proved is not None:
        family, outcome = next(name for name in found if name != POSTERIOR), proved
    chosen = options if family == options.bonus else options.by(family)
    spec = chosen.spec(RULE, outcome.eta)
    agent = _options_of(spec)
    standing = grounds_of(spec, problem).standing
    outcome = replace(outcome, standing=standing)
    gains = None
    if worlds is not None and worlds.planned is not None and worlds.today is not None:
        policy = worlds.policy if family == POSTERIOR or bounds is None else bounds.policy
        values = [value_of(worlds.planned, each, worlds.starts) for each in (policy, worlds.today)]
        gains = values[0] - values[1]
    source = options.source or Source()
    return Verdict(
        sentence=_sentence(problem, options, spec, outcome, worlds, gains),
        explores=outcome.deviating > 0,
        agent=agent,
        standing=standing,
        outcome=outcome,
        gain=None if gains is None else interval_of(gains),
        python=as_python(problem, options, agent, source),
        toml=as_toml(agent),
        cli=as_command(problem, options, agent, source),
    )


def _strict(outcomes: Iterable[BudgetOutcome]) -> tuple[BudgetOutcome, ...]:
    return tuple(each for each in outcomes if each.rule == RULE)


def _proved(
    found: dict[str, tuple[BudgetOutcome, ...]],
    options: PreviewOptions,
    worlds: Analysis | None,
    bounds: Analysis | None,
    outcome: BudgetOutcome,
) -> BudgetOutcome | None:
    """Return what proved bounds buy with the budget of `outcome`, None if posterior worlds buy clearly more.

    The worlds have to agree that the baseline of the bounds is about as good as theirs.
    """
    if worlds is None or bounds is None or worlds.planned is None or worlds.credible is None:
        return None
    family = next(name for name in found if name != POSTERIOR)
    same = next((each for each in found[family] if each.eta == outcome.eta), None)
    if same is None or family == "bernstein" or options.bonus_scale != 1.0:
        return None
    value = value_of(worlds.planned, bounds.policy, worlds.starts)
    as_good = float(value.mean()) >= worlds.credible.baseline_value.low
    return same if as_good and 0 < same.deviating >= COMPARABLE * outcome.deviating else None


def _chosen(outcomes: tuple[BudgetOutcome, ...]) -> BudgetOutcome:
    """Return the smallest budget that allows most of what the largest one does."""
    most = max(each.deviating for each in outcomes)
    return next(each for each in outcomes if each.deviating >= MOST_OF_IT * most)


def _options_of(spec: CharyUCBVI) -> dict[str, Any]:
    """Return the options that decide, with all that differ from their defaults."""
    usual = CharyUCBVI(eta=spec.eta, bonus=spec.bonus)
    named = ["eta", "bonus", "rule", "risk" if spec.bonus == POSTERIOR else "delta", "pool"]
    others = (
        "bonus_scale",
        "reward",
        "charge",
        "after_refusal",
        "worlds",
        "world_prior",
        "kappa",
        "pessimism",
    )
    named += [name for name in others if getattr(spec, name) != getattr(usual, name)]
    return {name: getattr(spec, name) for name in named}


def _sentence(
    problem: Problem,
    options: PreviewOptions,
    spec: CharyUCBVI,
    outcome: BudgetOutcome,
    worlds: Analysis | None,
    gains: Floats | None,
) -> str:
    unit, posterior = options.unit, spec.bonus == POSTERIOR
    family = "posterior worlds" if posterior else f"certified bounds ({spec.bonus})"
    if not posterior and not spec.bounds.certified:
        family = f"bounds ({spec.bonus})"
    chance = f"a risk of {_share(spec.risk)}" if posterior else f"a delta of {_share(spec.delta)}"
    eta = budget(outcome.eta, unit)
    learnt = "" if gains is None else _about_gain(problem, gains, unit)
    if outcome.deviating > 0:
        loss = outcome.charge_per_episode if outcome.expected_loss is None else outcome.expected_loss
        what = "an expected loss of" if posterior else "a booked loss of at most"
        return (
            f"Recommended: {family}, rule {spec.rule}, a budget of {eta} per episode, {chance} and a pool of "
            f"{spec.pool:,} chains, which would try another action than the baseline at "
            f"{percent(outcome.deviating)} of the decisions, in {percent(outcome.episodes_deviating)} of the "
            f"episodes, at {what} {amount(loss, unit, digits=3)} per episode{learnt}. {_reference(problem)}"
        )
    if worlds is not None and worlds.charges.differing == 0:
        why = "no explorer wants anything else than the baseline at the logged states"
    else:
        dear = None if worlds is None or not worlds.charges.overall else worlds.charges.overall[0]
        why = "no budget given affords another action than the baseline's"
        why += "" if dear is None else f", of which the cheapest is charged {amount(dear, unit, digits=3)}"
    several = "Any of these budgets is kept" if len(tuple(options.etas)) > 1 else "It is kept"
    return (
        f"Exploring would buy nothing yet: {why}{learnt}. {several} with {family}, rule {spec.rule} and "
        f"{chance}, which is the configuration below: it explores once data allow it. "
        f"{_reference(problem)}"
    )


def _reference(problem: Problem) -> str:
    """Return what a budget is counted from."""
    role = None if problem.own is None else problem.own.role
    if role == "only":
        return "The budget limits what an episode loses compared with today's policy."
    if role == "floor":
        return (
            "The budget limits what an episode loses compared with today's policy as the log improves it; "
            "with --role only, compared with today's policy alone."
        )
    way_out = "--baseline FILE (OwnBaseline)" if role is None else "--role floor or only"
    return (
        "The budget limits what an episode loses compared with the learnt baseline, which may already differ "
        f"from today's policy; {way_out} makes today's the reference."
    )


def _about_gain(problem: Problem, gains: Floats, unit: str) -> str:
    """Return what the baseline gains on today's policy, from the gain in every world."""
    gain, better = interval_of(gains), float((gains > 0.0).mean())
    if problem.own is not None and problem.own.role == "only":
        return "; the baseline is today's policy, and gains nothing by itself"
    whose = "the baseline learnt from the log"
    if problem.own is not None:
        whose = "today's policy, improved where the log is sure of it,"
    if gain.low <= 0 <= gain.high:
        return f"; {whose} is about as good as today's policy, {interval(gain, unit)} per episode apart"
    if gain.mean < 0:
        return f"; {whose} loses {amount(-gain.mean, unit)} per episode on today's, so declare a --baseline"
    words = f"; {whose} gains {interval(gain, unit)} per episode"
    if problem.own is None and better < 0.95:
        words += f", and in {percent(1 - better)} of the worlds it loses: declare today's as a --baseline"
    return words


def _share(value: float) -> str:
    return f"{100 * value:.4g} %"
