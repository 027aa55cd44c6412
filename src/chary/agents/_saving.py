"""Saving of `TabularAgent`: all of an agent as arrays and plain values, and an agent of them again.

It reads and writes the private parts of an agent, as one half of that class. A file can be changed and sealed
again, so whatever the kernels trust is checked here.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping, Sequence
from dataclasses import fields
from numbers import Integral
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from chary.agents import make_agent
from chary.agents._choosing import Pinned, check_policy
from chary.agents._episodes import NOT_TAKEN, OpenEpisode, Played, Transition
from chary.agents._learner import Learner
from chary.agents._learnt import generator_from, generator_values
from chary.agents._steps import (
    decision_rows,
    decisions_from,
    report_rows,
    reports_from,
    vote_rows,
    votes_from,
    wholes,
)
from chary.agents._world_learner import WorldLearner
from chary.agents.comparison import MixtureSpec
from chary.agents.protocol import AgentSpec
from chary.agents.tabular import TabularAgent
from chary.errors import InvalidData, check_integer, check_real
from chary.mdp.setting import Setting
from chary.model.calibration import CalibrationRecord
from chary.model.risk_calibration import RiskRecord, record_from_plain
from chary.storage.sealed import as_array, under
from chary.texts import shown

Arrays = dict[str, NDArray[Any]]


def record(agent: TabularAgent, cells: Arrays) -> tuple[Arrays, dict[str, Any]]:
    """Return all there is to save, with a discretiser's arrays, as arrays and as plain values."""
    table = PlayedTable()
    pins = [now.pinned for now in agent._episodes]
    plans: dict[int, Any] = {**agent._learner.held, **{pin.version: pin.plan for pin in pins}}
    arrays, learner = agent._learner.record(plans[min(plans)] if plans else None)
    arrays |= {f"setting.{name}": array for name, array in agent.setting.to_arrays().items()}
    arrays |= {f"discretiser.{name}": array for name, array in cells.items()}
    arrays |= {"facts.ends": agent._facts.ends, "facts.left": agent._facts.left}
    arrays |= agent._chooser.record()
    shield = None if agent.shield is None else agent.shield.record(table.number)
    arrays |= _of_open_episodes(pins, shield, agent.setting)
    about = {
        "spec": [agent.spec.name, spec_values(agent.spec)],
        "max_episodes": agent._max_episodes,
        "warmup": agent._warmup,
        "begun": agent.episodes_begun,
        "generator": generator_values(agent._chooser.generator),
        "learner": learner,
        "shield": shield,
        "open": [
            [now.name, pin.number, pin.version, now.state, pin.switch, table.numbers(now.steps), *now.flags]
            for now, pin in zip(agent._episodes, pins, strict=True)
        ],
        "late_rollouts": [table.numbers(rollout) for rollout in agent._late_rollouts],
        "waiting": [[table.number(step), action] for step, action in agent._visits.pending()],
        "losses": agent.losses,
        "logs": agent._learner.logs,
        "overrides": agent.overrides,
    }
    # What earlier versions did not have is told only where there is something to tell.
    budgets = [[i, pin.limits, pin.closed_at] for i, pin in enumerate(pins)]
    own: list[Any] = [kept for kept in budgets if kept[1:] != [[], -1]]
    about |= {"budgets": own} if own else {}
    about |= {"untaken": True} if agent._untaken else {}
    about |= {"logged": agent._logged_steps} if agent.spec.bonus == "l1" else {}
    about |= {"replan": agent.replan} if agent.replan != "episode" else {}
    return arrays | table.to_arrays(), about


def _of_open_episodes(pins: Sequence[Pinned], shield: dict[str, Any] | None, setting: Setting) -> Arrays:
    """Return what every open episode has of its own, one row per episode; deficits leave `shield` for it.

    A service saves thousands of open episodes while others wait for decisions: an array each, or a number of
    JSON per world, would take several times as long.
    """
    S, H = setting.n_states, setting.horizon
    uniforms = np.array([pin.uniforms for pin in pins], dtype=np.float64).reshape(len(pins), H + 1)
    arrays: Arrays = {"open.uniforms": uniforms}
    own = [(i, pin.explorer) for i, pin in enumerate(pins) if pin.explorer is not None]
    if own:
        arrays["open.explores"] = np.array([i for i, _ in own], dtype=np.int64)
        arrays["open.explorers"] = np.array([each for _, each in own], dtype=np.int64).reshape(-1, H, S)
    deficits = []
    for *_, last in [] if shield is None else shield["episodes"]:
        # The last entry of an account whose plan has worlds: its deficit in each of them, and its vote.
        if isinstance(last, list) and last and isinstance(last[0], (list, np.ndarray)):
            deficits.append(last[0])
            last[0] = None
    if deficits:
        arrays["open.deficits"] = np.array(deficits, dtype=np.float64)
    return arrays


def restored(about: Mapping[str, Any], arrays: Arrays) -> TabularAgent:
    """Return the agent that `record` was called with; malformed values raise whatever they lead to."""
    name, options = about["spec"]
    agent = TabularAgent(
        make_agent(name, **options_from(options)),
        Setting.from_arrays(under("setting.", arrays)),
        max_episodes=about["max_episodes"],
        warmup=about["warmup"],
        generator=generator_from(about["generator"]),
        oracle_value=arrays.get("oracle_value"),
        losses=_truth("losses", about.get("losses", False)),
        overrides=about.get("overrides", "ignored"),
        replan=about.get("replan", "episode"),
    )
    _restore(agent, arrays, about)
    # Files of version 0.1 do not tell whether logs were learnt from.
    agent._learner.logs = _truth("logs", about.get("logs", True))
    agent._discretiser = under("discretiser.", arrays)
    # Files of version 0.1 do not tell how much of the log declared was learnt.
    agent._logged_steps = _whole("logged", about.get("logged", agent._warmup * agent.horizon))
    agent._untaken = _truth("untaken", about.get("untaken", False))
    return agent


def _restore(agent: TabularAgent, arrays: Mapping[str, NDArray[Any]], about: Mapping[str, Any]) -> None:
    """Take on what `record` returned."""
    steps = PlayedTable.steps(arrays, agent.setting)

    def recall(number: object) -> Played[int] | None:
        return recalled(steps, number)

    def all_of(numbers: Sequence[object]) -> list[Played[int]]:
        return [step for step in map(recall, numbers) if step is not None]

    versions = {int(kept[2]) for kept in about["open"]}
    plans = agent._learner.restore(arrays, about["learner"], versions)
    A = agent.setting.n_actions
    agent.episodes_begun = check_integer("begun", about["begun"], minimum=0)
    agent._facts.restore(arrays)
    agent._chooser.restore(arrays, agent._facts.ends)
    for policy in agent._learner.explorers.values():
        check_policy("explorers", policy, agent.setting, agent._facts.ends)
    n = len(about["open"])
    all_uniforms, explorers = _each_open(arrays, n, agent.setting)
    for i, (episode, number, version, state, switch, played, *flags) in enumerate(about["open"]):
        uniforms = all_uniforms[i]
        pinned = Pinned(plans[int(version)], int(number), int(version), uniforms, switch=int(switch))
        if not (0 <= pinned.number <= agent._learner.plans and ((uniforms >= 0) & (uniforms < 1)).all()):
            raise InvalidData(f"'open' must hold episodes an agent can begin, got another {episode!r}.")
        if i in explorers:
            pinned.explorer = explorers[i]
            check_policy("explorer", pinned.explorer, agent.setting, agent._facts.ends)
        elif isinstance(agent.spec, MixtureSpec):
            raise InvalidData(f"'open' must contain an explorer for episode {episode!r}.")
        s = agent._facts.state("state", state)
        agent._episodes.restore(OpenEpisode.restored(episode, s, pinned, all_of(played), flags))
    if agent.shield is not None:
        unreleased = {now.name: now for now in agent._episodes if not now.released}
        _give_back_deficits(about["shield"], arrays)
        _check_shield(about["shield"], agent.setting, unreleased, agent._learner)
        _restore_budgets(agent, about.get("budgets", []))
        agent.shield.restore(
            about["shield"],
            {now.name: now.pinned.plan for now in agent._episodes},
            recall,
            {now.name: now.pinned.limits[-1][1] for now in agent._episodes if now.pinned.limits},
        )
    agent._late_rollouts = [all_of(numbers) for numbers in about["late_rollouts"]]
    of_open_episodes = [(step, step.decision.action) for now in agent._episodes for step in now.steps]
    if "waiting" in about:
        waiting = [
            (recall(number), _whole("waiting", action, below=A)) for number, action in about["waiting"]
        ]
        kept_waiting = [(step, action) for step, action in waiting if step is not None]
        missing = {id(step) for step, _ in of_open_episodes if step.missing and not step.overruled}
        if not missing <= {id(step) for step, _ in kept_waiting}:
            raise InvalidData("'waiting' must hold every step whose outcome is outstanding, got fewer.")
    else:
        # Version 0.1 counted an episode as a whole, once it was complete.
        kept_waiting = of_open_episodes
    agent._visits.restore(kept_waiting)
    agent._facts.recall(*agent._learner.successors())
    for step in steps:
        if step.outcome is not None:
            agent._facts.note(step.outcome)


def _each_open(
    arrays: Mapping[str, NDArray[Any]], n: int, setting: Setting
) -> tuple[NDArray[Any], dict[int, NDArray[Any]]]:
    """Return the uniforms of `n` open episodes, and the explorers of those that have one of their own."""
    H, S, A = setting.horizon, setting.n_states, setting.n_actions
    if "open.uniforms" in arrays:
        uniforms = as_array("open.uniforms", arrays, (n, H + 1), np.float64)
        if "open.explores" not in arrays:
            return uniforms, {}
        own = as_array("open.explores", arrays, (None,), np.int64, below=n)
        explorers = as_array("open.explorers", arrays, (len(own), H, S), np.int64, below=A)
        return uniforms, dict(zip(own.tolist(), explorers, strict=True))
    # Version 0.1 had an array per episode.
    each = [as_array(f"open.{i}.uniforms", arrays, (H + 1,), np.float64) for i in range(n)]
    names = {i: name for i in range(n) if (name := f"open.{i}.explorer") in arrays}
    return np.array(each), {i: as_array(name, arrays, (H, S), np.int64, below=A) for i, name in names.items()}


def _give_back_deficits(shield: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> None:
    """Put the deficits in worlds back where `_of_open_episodes` took them from."""
    if "open.deficits" in arrays:
        deficits = as_array("open.deficits", arrays, (len(shield["episodes"]), None), np.float64)
        for (*_, last), row in zip(shield["episodes"], deficits.tolist(), strict=True):
            last[0] = row


def spec_values(spec: AgentSpec) -> dict[str, Any]:
    """Return the options of an agent as JSON has them: no infinity, arrays as lists."""
    values: dict[str, Any] = {}
    for field in fields(spec):
        value = getattr(spec, field.name)
        if isinstance(value, float) and not np.isfinite(value):
            value = repr(value)
        elif field.name == "prior" and value is not None and not isinstance(value, str):
            value = np.asarray(value).tolist()
        elif isinstance(value, CalibrationRecord | RiskRecord):
            value = value.to_plain()
        elif value is not None and not isinstance(value, (bool, int, float, str)):
            # Numbers of NumPy, or fractions.
            value = int(value) if isinstance(value, Integral) else float(value)
        values[field.name] = value
    return values


def options_from(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that `spec_values` wrote."""
    # Agents of version 0.1 had no other order of ties.
    options = {"ties": "index", **values}
    for name in ("eta", "step_bound", "ask_growth"):
        if isinstance(options.get(name), str):
            options[name] = float(options[name])
    if isinstance(options.get("prior"), list):
        options["prior"] = np.array(options["prior"])
    if isinstance(options.get("calibration"), dict):
        options["calibration"] = record_from_plain(options["calibration"])
    return options


@final
class PlayedTable:
    """Steps that were played, each with a number: chains and episodes that share one keep sharing it."""

    def __init__(self) -> None:
        self._numbers: dict[int, int] = {}
        self._steps: list[Played[int]] = []

    def number(self, step: object) -> int | None:
        """Return the number of a step, None for other objects."""
        if not isinstance(step, Played):
            return None
        if id(step) not in self._numbers:
            self._numbers[id(step)] = len(self._steps)
            self._steps.append(step)
        return self._numbers[id(step)]

    def numbers(self, steps: Sequence[Played[int]]) -> list[int | None]:
        """Return the numbers of several steps."""
        return [self.number(step) for step in steps]

    def to_arrays(self) -> Arrays:
        """Return the steps by column; an outcome that is not known is a row of NaN."""
        n = len(self._steps)
        unknown = (np.nan,) * len(Transition._fields)
        outcomes = np.array([step.outcome or unknown for step in self._steps], dtype=np.float64)
        voted = any(step.decision.vote is not None for step in self._steps)
        told = any(step.taken is not None for step in self._steps)
        return {
            **({"played.vote": vote_rows(self._steps)} if voted else {}),
            **({"played.taken": report_rows(self._steps)} if told else {}),
            "played.decision": decision_rows(self._steps),
            "played.outcome": outcomes.reshape(n, len(unknown)),
            "played.state": np.array([step.state for step in self._steps], dtype=np.int64),
            "played.lost": np.array([step.lost for step in self._steps], dtype=bool),
        }

    @staticmethod
    def steps(arrays: Mapping[str, NDArray[Any]], setting: Setting) -> list[Played[int]]:
        """Return the steps that `to_arrays` made columns of, by number.

        Raises:
            InvalidData: if they are not steps of this problem.
        """
        n = len(np.atleast_1d(arrays["played.state"]))
        states = as_array("played.state", arrays, (n,), np.int64, below=setting.n_states)
        votes = votes_from("played.vote", arrays, n)
        decisions = decisions_from("played.decision", arrays, n, setting.n_actions, votes, setting.scale.span)
        outcomes = as_array("played.outcome", arrays, (n, len(Transition._fields)), np.float64)
        lost = as_array("played.lost", arrays, (n,), bool)
        allowed = setting.pair_index[states, np.array([each.action for each in decisions], dtype=np.int64)]
        if (allowed < 0).any():
            raise InvalidData("'played.decision' must hold decisions of this problem, got others.")
        _check_outcomes(outcomes, states, setting)
        known = [None if np.isnan(action) else int(action) for action in outcomes[:, 1].tolist()]
        taken = reports_from("played.taken", arrays, known, setting.n_actions)
        told = [(s, a) for s, a in zip(states, taken, strict=True) if a is not None and a != NOT_TAKEN]
        if any(setting.pair_index[s, a] < 0 for s, a in told):
            raise InvalidData("'played.taken' must be actions allowed in this problem, got others.")
        return [
            Played(decision, state, _outcome(outcome), gone, report)
            for decision, outcome, state, gone, report in zip(
                decisions, outcomes.tolist(), states.tolist(), lost.tolist(), taken, strict=True
            )
        ]


def recalled(steps: Sequence[Played[int]], number: object) -> Played[int] | None:
    """Return the step of that number, None for None.

    Raises:
        InvalidData: if there is no such step.
    """
    if number is None:
        return None
    if not isinstance(number, int) or not 0 <= number < len(steps):
        raise InvalidData(f"'played' must hold {len(steps)} steps, got one of number {number!r}.")
    return steps[number]


def _check_shield(
    kept: Mapping[str, Any],
    setting: Setting,
    episodes: Mapping[Any, OpenEpisode[int, Any]],
    learner: Learner | WorldLearner,
) -> None:
    """Raise InvalidData unless a shield's record is one of this problem and of these open episodes.

    Args:
        kept: What `Shield.record` returned, with the states of tabular agents.
        setting: The problem.
        episodes: The open episodes that the shield has not closed.
        learner: What has the explorers of chains. With worlds, a chain without a step has none yet.
    """
    with_worlds = isinstance(learner, WorldLearner)
    S, H = setting.n_states, setting.horizon
    for counter in (*kept["counters"], kept["started"]):
        _whole("counters", counter)
    open_chains: set[int] = set()
    for chain, target, born, advanced, waiting, complete, steps, *numbers in kept["chains"]:
        for number in (born, advanced, *numbers[:3]):
            _whole("chains", number)
        _whole("chains", chain, below=kept["started"])
        _whole("chains", target, below=S)
        _check_chain(steps, setting)
        for name, steps_played in numbers[3]:
            _whole("chains", steps_played)
            _named("chains", name, episodes)
        for name in numbers[4]:
            _named("chains", name, episodes)
        whole = len(steps) <= H if _truth("chains", complete) else len(steps) < H
        if chain in open_chains or not whole or (_truth("chains", waiting) and complete):
            raise InvalidData(f"'chains' must be open chains of {H} steps at most, got others.")
        needs_explorer = bool(steps) or not with_worlds
        if not complete and needs_explorer and chain not in learner.explorers:
            raise InvalidData(f"'explorers' must contain that of chain {chain}.")
        open_chains.add(chain)
    if {each[0] for each in kept["episodes"]} != set(episodes):
        raise InvalidData("'episodes' of the shield must be those of the agent, got others.")
    for name, number, ledger, t, fed, pending, reached, terminated, explored, refused, *chains in kept[
        "episodes"
    ]:
        now = episodes[name]
        last = now.steps[-1] if now.steps else None
        outstanding = last is not None and pending is not None
        closed, deficit = ledger
        for each in (terminated, refused, closed):
            _truth("episodes", each)
        _whole("episodes", explored)
        decided = None if pending is None else pending[:3] + pending[4:]
        touched, finished, dropped, *worlds = chains
        agree = number == now.pinned.number and t == len(now.steps) - outstanding
        agree &= deficit == (0.0 if last is None else last.decision.deficit_scaled)
        agree &= terminated == now.terminated and (t == 0 or outstanding or reached == now.state)
        agree &= (pending is None) == (last is None or last.outcome is not None)
        if last is not None and decided is not None:
            action, was_explored, charge, _, _, _, chain, vote, _ = last.decision
            agree &= decided == [last.state, action, was_explored, chain] and pending[3] == charge
            agree &= not worlds or worlds[0][1] == (vote and list(vote))
        agree &= not worlds or _are_deficits(worlds[0][0], learner)
        agree &= fed is None or fed in open_chains
        agree &= set(touched) <= open_chains
        for chain, steps, *numbers in finished:
            _check_chain(steps, setting)
            agree &= 0 < len(steps) <= H and len(numbers) == 5
            for each in (chain, *numbers):
                _whole("finished", each)
        for chain in dropped:
            _whole("dropped", chain, below=kept["started"])
        if not agree or (reached is not None and _whole("episodes", reached, below=S) != reached):
            raise InvalidData(f"'episodes' of the shield must be as the agent's, got another {name!r}.")


def _are_deficits(deficits: object, learner: Learner | WorldLearner) -> bool:
    """Return whether these can be the deficits of an episode, one per world that judges."""
    n = learner.ledgers if isinstance(learner, WorldLearner) else 0
    if not isinstance(deficits, list) or len(deficits) != n:
        return False
    return all(isinstance(each, float) and 0.0 <= each < np.inf for each in deficits)


def _check_chain(steps: Sequence[Any], setting: Setting) -> None:
    S, A = setting.n_states, setting.n_actions
    for s, a, x, _ in steps:
        for number, below in ((s, S), (a, A), (x, S)):
            _whole("chains", number, below=below)
    for (*_, reached, _), (s, *_) in itertools.pairwise(steps):
        if reached != s:
            raise InvalidData(f"'chains' must go on where they got to, got {s} after {reached}.")


def _named(name: str, episode: object, episodes: Collection[Any]) -> None:
    if not isinstance(episode, (int, str)) or episode not in episodes:
        raise InvalidData(f"{name!r} must name open episodes, got {shown(episode)}.")


def _whole(name: str, value: object, *, below: int | None = None) -> int:
    whole = check_integer(name, value, minimum=0, error=InvalidData)
    if below is not None and whole >= below:
        raise InvalidData(f"{name!r} must hold numbers below {below}, got {whole}.")
    return whole


def _truth(name: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise InvalidData(f"{name!r} must be true or false, got {shown(value)}.")
    return value


def _check_outcomes(outcomes: NDArray[Any], states: NDArray[Any], setting: Setting) -> None:
    state, action, reward, reached, terminated = outcomes.T
    fits = (state == states) & wholes(action, 0, setting.n_actions) & (reward >= 0) & (reward <= 1)
    fits &= wholes(reached, 0, setting.n_states) & np.isin(terminated, (0, 1))
    # Another action than decided may have been played, but only an allowed one.
    known = np.where(fits, action, 0).astype(np.int64)
    fits &= setting.pair_index[states, known] >= 0
    if not (fits | np.isnan(outcomes).all(axis=1)).all():
        raise InvalidData("'played.outcome' must hold what followed the decisions, got something else.")


def _outcome(row: Sequence[float]) -> Transition | None:
    state, action, reward, next_state, terminated = row
    if np.isnan(state):
        return None
    return Transition(int(state), int(action), reward, int(next_state), bool(terminated))


def _restore_budgets(agent: TabularAgent, kept: Sequence[Any]) -> None:
    """Take on the budgets of single episodes, and from which step on they did not explore any more."""
    open_episodes = list(agent._episodes)
    for place, limits, closed_at in kept:
        now = open_episodes[_whole("budgets", place, below=len(open_episodes))]
        for step, limit in limits:
            _whole("budgets", step, below=now.t + 1)
            check_real("budgets", limit, low=0.0, open_high=True, error=InvalidData)
        pairs = [(int(step), float(limit)) for step, limit in limits]
        if not all(one[0] <= two[0] and one[1] > two[1] for one, two in itertools.pairwise(pairs)):
            raise InvalidData("'budgets' must fall from step to step, got others.")
        now.pinned.limits = pairs
        now.pinned.closed_at = check_integer("budgets", closed_at, minimum=-1, error=InvalidData)
