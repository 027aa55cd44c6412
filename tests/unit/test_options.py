"""The generated options: every command has those it had in version 0.1.0, each with one sentence."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import pytest
import typer
from typer.testing import CliRunner

from chary.cli import app
from chary.cli.options import ALL, Given, Options, command

SWEEP = (
    "--quick --seeds --episodes --etas* --studies --patient --device --out --workers --engine --address "
    "--extend --recompute --save-every --report/--no-report --log"
)
LOGS = "--column* --label* --delimiter --first-step --cut-at-horizon --drop-bad-episodes"
# Those of version 0.1.0, and the canary's; * marks those that repeat.
BEFORE = {
    "run": "problem --agent --eta --rule --step-bound --after-refusal --charge --pool --clock --data "
    "--patience --chains --bonus --bonus-scale --reward --delta --episodes --warmup --seed --actions "
    "--horizon --prior --alpha --baseline-value --coverage --driver --planner --check-every --out "
    "--worlds --world-prior --kappa --pessimism --risk --growth --explorer --calibration --ties "
    "--overwrite --json --candidates --share --ask-growth --return-cap --argument* --no-references --verbose",
    "check": "problem --eta --step-bound --actions --horizon --json",
    "calibrate": "problem --eta --rule --step-bound --after-refusal --charge --pool --clock --data "
    "--patience --chains --bonus --bonus-scale --reward --delta --prior --episodes --warmup --check --runs "
    "--seed --precision --minutes --workers --actions --horizon --out --ties --overwrite --json "
    "--worlds --world-prior --kappa --pessimism --risk --growth --explorer --rate "
    "--discount --reward-low --reward-high --n-states --n-actions --value-cap --support --allowed "
    f"--baseline --role --rewards {LOGS} --discretiser --ignore-extra",
    "bench": "problem --episodes --config* --seed --repeats --json",
    "problems": "--json",
    "agents": "--json",
    "demo": "--out --episodes --seed --overwrite",
    "reproduce": f"experiment {SWEEP} --json",
    "sweep": f"file {SWEEP} --template --json",
    "status": "directory --json",
    "report": "directory --out --json",
    "plan": "file --eta* --horizon --discount --reward-low --reward-high --n-states --n-actions --value-cap "
    "--support --allowed --prior --bonus --bonus-scale --delta --max-episodes --charge --rule* --step-bound "
    "--after-refusal --holdout --more-visits --worlds --world-prior --kappa --pessimism "
    f"--risk --seed {LOGS} --discretiser --ignore-extra --out --overwrite --json "
    "--baseline --role --rewards --unit --verbose",
    "data inspect": f"file --horizon --states --actions --discretiser --ignore-extra --json --faults {LOGS}",
    "data seal": "file --overwrite --json",
    "data convert": f"source target --discretiser --ignore-extra --overwrite --json {LOGS}",
}
# Defaults of version 0.1.0 and later that are not None; True and False are flags.
DEFAULTS = {
    "run": "agent=chary seed=0 coverage=played driver=compiled planner=incremental check_every=0 "
    "no_references=False verbose=False",
    "calibrate": "check=False seed=0",
    "bench": "problem=sepsis episodes=50000 seed=0 repeats=1",
    "demo": "out=out seed=0",
    "reproduce": "quick=False device=cpu engine=local extend=False recompute=False report=True",
    "plan": "discount=1.0 allowed=all role=floor bonus_scale=1.0 delta=0.1 holdout=0.0 "
    "worlds=64 world_prior=auto kappa=100.0 pessimism=0.0 risk=0.001 seed=0 more_visits=100 "
    "ignore_extra=False overwrite=False as_json=False",
}


def commands(group: Any, prefix: str = "") -> Iterator[tuple[str, list[Any]]]:
    """Yield every command's name and its parameters, built as they are when it is invoked."""
    for name, each in group.commands.items():
        if "commands" in vars(each):
            yield from commands(each, f"{prefix}{name} ")
        else:
            built = each.make_context(name, [], resilient_parsing=True).command
            yield f"{prefix}{name}", built.params


COMMANDS = dict(commands(typer.main.get_command(app)))


def written(parameter: Any) -> str:
    names = "/".join([*parameter.opts, *parameter.secondary_opts])
    return names + "*" * bool(getattr(parameter, "multiple", False))


@pytest.mark.parametrize("name", BEFORE)
def test_every_command_has_the_options_it_had_before(name: str) -> None:
    assert sorted(map(written, COMMANDS[name])) == sorted(BEFORE[name].split())


def test_there_is_no_other_command() -> None:
    # Those of the service came later, and have tests of their own.
    assert {name for name in COMMANDS if not name.startswith(("serve ", "audit "))} == set(BEFORE)


@pytest.mark.parametrize("name", DEFAULTS)
def test_defaults_are_those_from_before(name: str) -> None:
    now = {each.name: each.default for each in COMMANDS[name]}
    for pair in DEFAULTS[name].split():
        option, value = pair.split("=")
        assert str(now[option]) == value, option


@pytest.mark.parametrize("name", BEFORE)
def test_every_option_has_one_sentence_of_help(name: str) -> None:
    for each in COMMANDS[name]:
        assert re.fullmatch(r"[A-Z].*[^.]\.", each.help or ""), (each.name, each.help)
        assert not re.search(r"[.!?] [A-Z]", each.help), (each.name, each.help)


# The generator itself


@dataclass(frozen=True, slots=True, kw_only=True)
class Animal:
    """An animal.

    Args:
        name: The name.
        legs: Number of legs. Snakes have none.
        tame: Whether it is tame.
    """

    name: str = "rex"
    legs: int = 4
    tame: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Dog(Animal):
    """A dog.

    Args:
        name: The name it answers to.
        breed: The breed.
    """

    breed: Annotated[str | None, ("terrier", "spaniel")] = None


def feed(dog: Dog, grams: float, often: bool = True, *, progress: object = None) -> None:
    """Feed it.

    Args:
        grams: Amount of food.
        often: Whether it gets a second bowl.
    """


def ran(*arguments: str) -> tuple[dict[str, Any], Any]:
    seen: dict[str, Any] = {}
    application = typer.Typer()
    application.callback()(lambda: None)

    def walk(
        *,
        park: Annotated[Path, typer.Argument()],
        dog: Dog,
        food: Annotated[Given, Options(feed, without=("dog",), names={"grams": "weight"}, unset=ALL)],
    ) -> None:
        """Go for a walk."""
        seen.update(park=park, dog=dog, food=food)

    command(application, "walk", walk)
    return seen, CliRunner().invoke(application, ["walk", *arguments])


def test_a_dataclass_is_built_from_its_options() -> None:
    seen, _ = ran("meadow", "--legs", "3", "--breed", "spaniel", "--tame")
    assert seen == {"park": Path("meadow"), "dog": Dog(legs=3, breed="spaniel", tame=True), "food": {}}


def test_options_of_a_function_are_its_keywords_and_those_left_out_are_not_there() -> None:
    seen, _ = ran("meadow", "--weight", "2.5", "--often", "off")
    assert seen["food"] == {"grams": 2.5, "often": "off"}


def test_help_comes_from_the_docstrings_of_the_class_and_its_bases() -> None:
    _, shown = ran("--help")
    text = " ".join(shown.stdout.split())
    assert "The name it answers to." in text
    assert "Number of legs." in text
    assert "Snakes" not in text
    assert "terrier|spaniel" in text
    assert "progress" not in text
    assert "--no-tame" not in text


def test_a_value_of_another_type_is_named_with_the_option() -> None:
    _, shown = ran("meadow", "--legs", "many")
    assert shown.exit_code == 2
    assert "must be a whole number, got 'many'." in " ".join(shown.output.split())
