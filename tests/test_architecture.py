"""The laws of docs/architecture.md, read off the imports: an import against them is a defect."""

from __future__ import annotations

import ast
import graphlib
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "chary"

# What plans and acts is given a Setting, never the truth. What judges, simulates or holds true problems is
# named by its folder; a folder called `simulation` holds a judge wherever it is.
LEARNING = {"shield", "model", "planner", "agents", "critics", "deep", "linear", "policies"}
JUDGING = {"audit", "assumptions", "envs", "reference", "simulation", "sweeps", "results", "report", "bench"}
# FiniteMDP holds P and R. On the learning side it is named only where a *known* MDP is turned into something:
# true rows for the judge, and the recorded policy that comes with a problem.
MAY_NAME_THE_MDP = {"model.rows", "agents.protocol"}


def modules() -> list[str]:
    names = [".".join(path.relative_to(SOURCE).with_suffix("").parts) for path in SOURCE.rglob("*.py")]
    return sorted(name.removesuffix("__init__").removesuffix(".") for name in names)


def file_of(module: str) -> Path:
    path = SOURCE.joinpath(*module.split(".")) if module else SOURCE
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


@cache
def tree(module: str) -> ast.Module:
    return ast.parse(file_of(module).read_text(encoding="utf-8"))


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


def own_imports(module: str) -> set[str]:
    """The modules of chary that a module imports, without the prefix `chary`."""
    known = set(modules())
    return {
        name for each in imports(module) if (name := each.removeprefix("chary.")) != each and name in known
    }


def part(module: str) -> str:
    return module.split(".")[0]


def learns(module: str) -> bool:
    return part(module) in LEARNING and "simulation" not in module.split(".")


def test_imports_between_parts_go_one_way() -> None:
    graph: dict[str, set[str]] = {}
    for module in filter(None, modules()):
        graph.setdefault(part(module), set()).update(
            part(other) for other in own_imports(module) if part(other) != part(module)
        )
    # Raises CycleError with the parts on the cycle.
    assert set(graphlib.TopologicalSorter(graph).static_order()) == set(graph)


def test_only_two_modules_of_the_top_level_are_private() -> None:
    top = {path.stem for path in SOURCE.glob("*.py")} - {"__init__", "__main__"}
    assert {name for name in top if name.startswith("_")} == {"_compile", "_workers"}
    assert len(top) + 2 <= 15


def test_the_shield_imports_the_standard_library_alone() -> None:
    for module in modules():
        if part(module) == "shield":
            for name in imports(module):
                ours = re.match(r"chary\.(shield|errors|texts)\b", name)
                assert ours or part(name) in sys.stdlib_module_names, f"chary.{module} imports {name}"


def test_learners_never_see_the_truth() -> None:
    for module in filter(learns, modules()):
        seen = {other for other in own_imports(module) if part(other) in JUDGING or "simulation" in other}
        # The list of public names of `chary.deep` imports nothing until a name is used.
        assert not seen or module == "deep", f"chary.{module} imports {seen}"
        if module not in MAY_NAME_THE_MDP:
            assert "chary.mdp.FiniteMDP" not in imports(module), module


def test_only_boundaries_catch_every_exception() -> None:
    """The command line, a worker, one request of the service, and the code of users."""
    catching = {
        module
        for module in modules()
        for node in ast.walk(tree(module))
        if isinstance(node, ast.ExceptHandler)
        and (node.type is None or (isinstance(node.type, ast.Name) and node.type.id == "Exception"))
    }
    assert catching == {"cli", "sweeps.worker", "service.app", "extensions"}


def test_only_the_boundary_of_users_code_imports_what_a_text_names() -> None:
    # Others import parts of chary itself, by names that begin with those of its own.
    own = {"", "cli.options", "critics.protocol", "deep", "report", "results"}
    importing = {name for name in modules() if "import_module(" in file_of(name).read_text(encoding="utf-8")}
    assert importing - own == {"extensions"}


def test_every_module_has_a_name_that_says_what_it_holds() -> None:
    parts = {name for module in modules() for name in module.split(".")}
    assert not parts & {"utils", "helpers", "common", "misc"}


def test_no_function_has_more_than_15_parameters() -> None:
    for module in modules():
        for node in ast.walk(tree(module)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                taken = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
                assert len(taken) <= 15, f"chary.{module}.{node.name} has {len(taken)}"


def test_no_module_has_more_than_500_lines() -> None:
    lengths = {module: len(file_of(module).read_text(encoding="utf-8").splitlines()) for module in modules()}
    assert {module: length for module, length in lengths.items() if length > 500} == {}


def loaded_by(code: str, *suspects: str) -> list[str]:
    """Which of `suspects` a fresh interpreter has loaded after running `code`."""
    probe = f"import sys\n{code}\nprint([name for name in {suspects!r} if sys.modules.get(name)])"
    answer = subprocess.run([sys.executable, "-c", probe], check=True, capture_output=True, text=True)
    loaded = ast.literal_eval(answer.stdout.splitlines()[-1])
    assert isinstance(loaded, list)
    return loaded


@pytest.mark.parametrize("module", ["chary", "chary.cli", "chary.shield", "chary.presets"])
def test_importing_is_light(module: str) -> None:
    heavy = ("numpy", "numba", "scipy", "gymnasium", "matplotlib", "rich")
    assert loaded_by(f"import {module}", *heavy) == []


def test_matplotlib_waits_until_it_is_used() -> None:
    assert loaded_by("import chary.simulation, chary.envs, chary.charts, chary.cli.demo", "matplotlib") == []


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
        "import chary.simulation, chary.rollouts, chary.simulation.run\n"
        "from chary import simulate, rollout\n"
        "assert callable(chary.simulate) and callable(chary.rollout)\n"
        "assert simulate is chary.simulate and rollout is chary.rollout\n"
        "assert chary.Run.__name__ == 'Run' and set(chary.__all__) == set(dir(chary))\n"
        "assert all(getattr(chary, name) is not None for name in chary.__all__)"
    )
    loaded_by(code)
