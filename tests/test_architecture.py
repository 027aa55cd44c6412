"""The directions of docs/architecture.md, read off the imports: an import against them is a defect."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "chary"

# A module may import from a lower level and from its own package. Names are parts directly under chary.
LEVELS: tuple[frozenset[str], ...] = (
    frozenset({"errors", "_compile", "_gymnasium_ids", "_options", "_terminal", "_workers"}),
    frozenset({"files"}),
    frozenset({"sealed"}),
    frozenset({"shield", "setting", "_mdp_checks", "randomness", "statistics", "presets", "figures"}),
    frozenset({"mdp", "policies", "charts"}),
    frozenset({"model", "envs"}),
    frozenset({"planner", "audit"}),
    frozenset({"agents", "_audit_kernels", "_chains", "assumptions"}),
    frozenset({"_plan_check", "_episode", "critics", "deep"}),
    frozenset({"_episode_log", "_guess", "testing", "wrappers"}),
    frozenset({"_loop", "run", "rollouts"}),
    frozenset({"_compiled_run", "_stepwise", "store"}),
    frozenset({"simulation"}),
    frozenset({"bench", "calibrate", "demo", "runner"}),
    frozenset({"_deep_results"}),
    frozenset({"data", "results"}),
    frozenset({"evaluation", "preview"}),
    frozenset({"report"}),
    frozenset({"_data_commands", "_sweep_commands"}),
    frozenset({"_plan_command"}),
    frozenset({"cli"}),
    frozenset({"__main__"}),
)
# Parts of one level that are one thing in several files.
FAMILIES = ({"setting", "_mdp_checks"},)

# Who plans and acts: it is told a Setting, and never what is true.
LEARNING = ("shield", "model", "planner", "agents", "critics", "deep", "policies")
JUDGING = (
    "audit",
    "_audit_kernels",
    "_plan_check",
    "assumptions",
    "envs",
    "simulation",
    "_compiled_run",
    "_stepwise",
    "_loop",
    "_episode",
    "_episode_log",
    "_guess",
    "run",
)
# FiniteMDP holds P and R. On the learning side it is named only where a *known* MDP is turned into something:
# the oracle's exact optimum, true rows for the judge, and the recorded policy that comes with a problem.
MAY_NAME_THE_MDP = {"planner.reference", "model.rows", "agents.protocol"}
# The deep learner's own judge, and what it judges with: nothing that learns or acts imports these.
JUDGING_DEEP = {"deep.audit", "deep.held_out", "deep.lanes", "deep.problems", "deep.simulation"}


def modules() -> list[str]:
    names = [".".join(path.relative_to(SOURCE).with_suffix("").parts) for path in SOURCE.rglob("*.py")]
    return sorted(name.removesuffix("__init__").removesuffix(".") for name in names)


@cache
def tree(module: str) -> ast.Module:
    path = SOURCE.joinpath(*module.split(".")) if module else SOURCE
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    return ast.parse(file.read_text(encoding="utf-8"))


@cache
def imports(module: str) -> frozenset[str]:
    """Every imported module and, for `from x import y`, also x.y, wherever the import stands."""
    found: set[str] = set()
    for node in ast.walk(tree(module)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module} imports relatively"
            assert node.module is not None
            found |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return frozenset(found)


def own_parts(module: str) -> Iterator[str]:
    """The parts directly under chary that a module imports from."""
    for name in imports(module):
        if name.startswith("chary."):
            part = name.split(".")[1]
            if (SOURCE / part).exists() or (SOURCE / f"{part}.py").exists():
                yield part


def level(part: str) -> int:
    places = [i for i, names in enumerate(LEVELS) if part in names]
    assert places, f"'{part}' has no level yet: give it one in LEVELS"
    return places[0]


@pytest.mark.parametrize("module", [name for name in modules() if name])
def test_imports_follow_the_direction_of_the_design(module: str) -> None:
    part = module.split(".")[0]
    for other in own_parts(module):
        same = other == part or any({other, part} <= family for family in FAMILIES)
        assert same or level(other) < level(part), f"chary.{module} must not import chary.{other}"


@pytest.mark.parametrize("module", [name for name in modules() if name.split(".")[0] == "shield"])
def test_the_shield_imports_the_standard_library_alone(module: str) -> None:
    for name in imports(module):
        root, _, rest = name.partition(".")
        if root == "chary":
            assert rest.split(".")[0] in ("shield", "errors"), f"chary.{module} imports {name}"
        else:
            assert root in sys.stdlib_module_names, f"chary.{module} imports {name}"


@pytest.mark.parametrize(
    "module", [name for name in modules() if name.split(".")[0] in LEARNING and name not in JUDGING_DEEP]
)
def test_learners_never_see_the_truth(module: str) -> None:
    assert not set(own_parts(module)) & set(JUDGING)
    # The package's own list of public names imports nothing until it is asked.
    assert module == "deep" or not imports(module) & {f"chary.{name}" for name in JUDGING_DEEP}
    if module not in MAY_NAME_THE_MDP:
        assert "chary.mdp.FiniteMDP" not in imports(module)


def test_only_the_command_line_and_a_worker_catch_every_exception() -> None:
    catching = {
        module
        for module in modules()
        for node in ast.walk(tree(module))
        if isinstance(node, ast.ExceptHandler)
        and (node.type is None or (isinstance(node.type, ast.Name) and node.type.id == "Exception"))
    }
    assert catching == {"cli", "runner.worker"}


def test_every_module_has_a_name_that_says_what_it_holds() -> None:
    parts = {part for module in modules() for part in module.split(".")}
    assert not parts & {"utils", "helpers", "common", "misc"}


def loaded_by(code: str, *suspects: str) -> list[str]:
    """Which of `suspects` a fresh interpreter has loaded after running `code`."""
    probe = f"import sys\n{code}\nprint([name for name in {suspects!r} if sys.modules.get(name)])"
    answer = subprocess.run([sys.executable, "-c", probe], check=True, capture_output=True, text=True)
    loaded = ast.literal_eval(answer.stdout.splitlines()[-1])
    assert isinstance(loaded, list)
    return loaded


HEAVY = ("numpy", "numba", "scipy", "gymnasium", "matplotlib", "rich")


@pytest.mark.parametrize("module", ["chary", "chary.cli", "chary.shield", "chary.presets"])
def test_importing_is_light(module: str) -> None:
    assert loaded_by(f"import {module}", *HEAVY) == []


@pytest.mark.parametrize("module", ["chary.simulation", "chary.envs", "chary.figures", "chary.demo"])
def test_gymnasium_and_matplotlib_wait_until_they_are_used(module: str) -> None:
    assert loaded_by(f"import {module}", "gymnasium", "matplotlib") == []


def test_a_run_needs_neither_gymnasium_nor_matplotlib() -> None:
    code = (
        "class Missing:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.split('.')[0] in ('gymnasium', 'matplotlib'):\n"
        "            raise ModuleNotFoundError(name)\n"
        "sys.meta_path.insert(0, Missing())\n"
        "import chary\n"
        "run = chary.simulate(chary.envs.riverswim(), chary.CharyUCBVI(eta=0.2), episodes=2)\n"
        "assert len(run.regret) == 2"
    )
    assert loaded_by(code, "gymnasium", "matplotlib") == []


def test_public_names_are_functions_and_classes_whatever_was_imported_first() -> None:
    code = (
        "import chary.simulation, chary.rollouts, chary.run\n"
        "from chary import simulate, rollout\n"
        "assert callable(chary.simulate) and callable(chary.rollout)\n"
        "assert simulate is chary.simulate and rollout is chary.rollout\n"
        "assert chary.Run.__name__ == 'Run' and set(chary.__all__) == set(dir(chary))\n"
        "assert all(getattr(chary, name) is not None for name in chary.__all__)"
    )
    loaded_by(code)
