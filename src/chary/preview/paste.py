"""A recommended configuration, ready to paste: as a program, as TOML, and as a command."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from chary.agents.protocol import POSTERIOR
from chary.data.declared import SUFFIXES
from chary.preview.options import PreviewOptions, Source
from chary.preview.problem import Problem

LABEL = "recommended"
PROVED = ("kl", "l1")
# What comes next, per episode of the user's.
LIVE = (
    "# Live: agent.begin(name, state); then per step decision = agent.act(name, t, state) and",
    "# agent.observe(name, chary.Transition(state, decision.action, reward, next_state, terminated));",
    "# agent.finish(name) at the end. States and actions are numbers, t counts from 0.",
)
# What a budget is counted from without a policy of the user's.
LEARNT = (
    "# The budget is counted from the learnt baseline, which may already differ from today's policy. For",
    "# today's: own=chary.OwnBaseline.declare(chary.data.usual_policy(log, setting), setting, role=...),",
    '# role "floor" (today\'s as the log improves it) or "only" (today\'s alone), or your policy itself.',
)
# Where the log was not read from a file.
WRITTEN = '# First write the log of this plan: chary.data.write_log(log, "{name}"), numbered from 0.'
READ_OFF = "# The range was read off the log: declare the lowest and highest reward that can ever occur."
# The longest line of a program on which a whole call is written.
WIDTH = 88


def as_python(problem: Problem, options: PreviewOptions, agent: Mapping[str, Any], source: Source) -> str:
    """Return a program from the log to an agent that has learnt it."""
    setting, plain = problem.setting, problem.plain.n_states
    A = setting.n_actions
    used = ["read_log"]
    # A log that was written by us has our names and numbers. Files of the user's beside it have the user's.
    options_read, words = dict(source.reading or {}), {}
    for name, given in {
        "columns": options_read.get("columns", options.columns),
        "labels": options.labels,
    }.items():
        if given and (options.source is not None or _has_files(options)):
            words[name] = given
    if options.source is not None:
        options_read |= words
    labels = "".join(f", {name}={name}" for name in words)
    # Texts of the user's get a line of their own: they are long, and used twice.
    lines = [_table(name, given) for name, given in words.items()]
    if options.source is None:
        lines.append(WRITTEN.format(name=source.name))
    reading = "".join(
        f", {name}={name if name in ('columns', 'labels') else _text(value)}"
        for name, value in options_read.items()
    )
    if source.discretiser is not None:
        used.append("load_discretiser")
        lines.append(f"cells = load_discretiser({_text(str(source.discretiser))})")
        reading += ", discretiser=cells"
    cut = ".cut_at()" if source.cut else ""
    lines.append(f"log = read_log({_text(source.name)}{reading}){cut}")
    if problem.change:
        lines.append("# Live, too, report an early ending with terminated=True: the agent does the rest.")
    declared: dict[str, str] = {
        "n_states": str(plain),
        "n_actions": str(A),
        "horizon": str(setting.horizon),
        "reward_range": repr((setting.scale.low, setting.scale.high)),
    }
    if setting.discount != 1.0:
        declared["discount"] = repr(setting.discount)
    if options.value_cap is not None:
        declared["value_cap"] = repr(float(options.value_cap))
    if problem.change:
        declared["early_endings"] = "True"
    elif setting.terminal.any():
        declared["terminal"] = repr(np.flatnonzero(setting.terminal).tolist())
    if options.allowed == "seen":
        lines += [
            f"allowed = np.zeros(({plain}, {A}), dtype=bool)",
            "allowed[log.state, log.action] = True",
            "allowed[~allowed.any(axis=1)] = True",
        ]
        declared["allowed"] = "allowed"
    if options.support is not None:
        declared["support"] = repr(min(options.support, plain))
    if options.rewards is not None:
        lines += _told("rewards", options.rewards, f"n_states={plain}, n_actions={A}{labels}", used)
        declared["reward"] = "rewards"
    if options.rewards is None and None in (options.reward_low, options.reward_high):
        lines.append(READ_OFF)
    lines.append(_call("setting = chary.Setting.declare", declared))
    lines.append(_call("spec = chary.CharyUCBVI", {name: _text(value) for name, value in agent.items()}))
    given = {"generator": f"np.random.default_rng({options.seed})"}
    if options.max_episodes is not None and agent["bonus"] not in (POSTERIOR, "kl"):
        given["max_episodes"] = repr(options.max_episodes)
    if source.discretiser is not None:
        given["discretiser"] = "cells"
    if problem.own is not None:
        sizes = f"n_states={plain}, horizon={setting.horizon}{labels}"
        sizes += f", first_step={options.first_step}" if options.first_step else ""
        lines += _told("policy", options.baseline, sizes, used)
        lines.append(f"own = chary.OwnBaseline.declare(policy, setting, role={_text(problem.own.role)})")
        given["own"] = "own"
    else:
        lines += LEARNT
    options_given = ", ".join(f"{name}={value}" for name, value in given.items())
    lines.append(f"agent = chary.TabularAgent(spec, setting, {options_given})")
    lines += ["agent.warm_start(log.episodes())", "print(agent.standing.describe())", *LIVE]
    head = ["import numpy as np", "", "import chary", f"from chary.data import {', '.join(sorted(used))}", ""]
    return "\n".join(head + lines)


def _has_files(options: PreviewOptions) -> bool:
    """Return whether a policy or rewards are read from a table of the user's."""
    given = (options.baseline, options.rewards)
    return any(isinstance(each, (str, Path)) and Path(each).suffix in SUFFIXES for each in given)


def _told(name: str, given: object, sizes: str, used: list[str]) -> list[str]:
    """Return the lines that read a declared policy or declared rewards, and note what they use."""
    if not isinstance(given, (str, Path)):
        return [f"# {name}: as given to the plan"]
    if name == "policy" and Path(given).suffix not in SUFFIXES:
        return [f"policy = {_text(str(given))}"]
    used.append(f"read_{name}")
    lines = [f"{name} = read_{name}({_text(str(given))}, {sizes})"]
    return lines + (["policy = np.maximum(policy, 0)  # without a choice"] if name == "policy" else [])


def _text(value: object) -> str:
    """Return a value as it stands in a program, texts in double quotes."""
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{_text(key)}: {_text(each)}' for key, each in value.items())}}}"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_text, value))}]"
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else repr(value)


def _table(name: str, values: Mapping[str, object]) -> str:
    """Return an assignment of texts by name, on one line or with a line for each."""
    line = f"{name} = {_text(values)}"
    if len(line) <= WIDTH:
        return line
    rows = "".join(f"    {_text(key)}: {_text(value)},\n" for key, value in values.items())
    return f"{name} = {{\n{rows}}}"


def _call(name: str, options: Mapping[str, str]) -> str:
    """Return a call, its options on the line of the call or on one of their own."""
    given = ", ".join(f"{key}={value}" for key, value in options.items())
    line = f"{name}({given})"
    return line if len(line) <= WIDTH else f"{name}(\n    {given}\n)"


def as_toml(agent: Mapping[str, Any]) -> str:
    """Return the budget and the agent as part of an experiment."""
    lines = [f"etas = [{agent['eta']}]", "", "[[algorithms]]", f'label = "{LABEL}"', 'agent = "chary"']
    lines.append('role = "ours"')
    return "\n".join(
        lines + [f"{name} = {json.dumps(each)}" for name, each in agent.items() if name != "eta"]
    )


def as_command(problem: Problem, options: PreviewOptions, agent: Mapping[str, Any], source: Source) -> str:
    """Return what to do next: calibrate on siblings resampled from the log, or plan on held-out episodes.

    Proved bounds need no calibration.
    """
    setting, proved = problem.setting, agent["bonus"] in PROVED
    words = ["chary", "plan" if proved else "calibrate", source.name, *source.arguments]
    declared: dict[str, Any] = {
        "horizon": setting.horizon,
        "reward-low": setting.scale.low,
        "reward-high": setting.scale.high,
        "n-states": problem.plain.n_states,
        "n-actions": setting.n_actions,
        "discount": None if setting.discount == 1.0 else setting.discount,
        "value-cap": options.value_cap,
        "support": options.support,
        "allowed": None if options.allowed == "all" else options.allowed,
    }
    files = {"baseline": options.baseline, "rewards": options.rewards}
    declared |= {name: given for name, given in files.items() if isinstance(given, (str, Path))}
    if "baseline" in declared:
        declared["role"] = options.role
    declared |= {name.replace("_", "-"): value for name, value in agent.items() if name != "reward"}
    if proved:
        declared.pop("pool")
        declared |= {"holdout": 0.2, "out": "plan"}
    else:
        # As many episodes as the log has, for want of a better number.
        declared |= {"episodes": int((problem.log.t == 0).sum()), "out": "calibration.json"}
    for name, value in declared.items():
        if value is not None:
            words += [f"--{name}", f"{value:.12g}" if isinstance(value, float) else str(value)]
    return shlex.join(words)
