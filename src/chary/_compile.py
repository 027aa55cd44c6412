"""The one way kernels are compiled: cached on disk, IEEE arithmetic, no reordering of sums."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
from collections.abc import Callable
from pathlib import Path
from types import FunctionType
from typing import Any, TypeVar, cast

if "NO_COLOR" in os.environ:
    # Where colorama is installed, numba ends every program by resetting the terminal's colours (as of 0.68).
    os.environ.setdefault("NUMBA_DISABLE_ERROR_MESSAGE_HIGHLIGHTING", "1")

import llvmlite.binding as llvm  # type: ignore[import-untyped]
import numba
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import CompilerBase, DefaultPassBuilder
from numba.core.compiler_machinery import AnalysisPass, PassManager, register_pass
from numba.core.typed_passes import AnnotateTypes

__all__ = ["bare", "calling", "folded", "inner", "jit", "jit_bare", "kernel_of"]

F = TypeVar("F", bound=Callable[..., object])

# No wrapper for C callers: nothing calls from C, and it would double the code of every signature.
# `_nrt` is explicit, since a kernel compiled on the way to another takes over what that one has.
OPTIONS: dict[str, Any] = {
    "fastmath": False,
    "error_model": "numpy",
    "no_cfunc_wrapper": True,
    "_nrt": True,
}

PACKAGE = Path(__file__).parent


class LinkedLibrary(JITCodeLibrary):
    """The code of a kernel that only other kernels call: optimised and made native with its callers alone.

    numba does both for every kernel, and again for every caller that it is linked into (as of 0.68): most of
    what a first start would take.
    """

    def _optimize_final_module(self) -> None:
        """Leave that to the callers, which contain more of the code."""

    def _finalize_final_module(self) -> None:
        """Give the engine the places of environments, which numba writes to, and nothing else."""
        places = [
            f'@"{each.name}" = common global ptr null'
            for each in self._final_module.global_variables
            if each.name.startswith("_ZN08NumbaEnv")
            and not self._codegen._engine.is_symbol_defined(each.name)
        ]
        if places:
            self._codegen._add_module(llvm.parse_assembly("\n".join(places)))
        self._finalized = True


@register_pass(mutates_CFG=False, analysis_only=True)
class OpenLinkedLibrary(AnalysisPass):
    """The step of the compiler that decides where code goes."""

    _name = "open_linked_library"

    def __init__(self) -> None:
        AnalysisPass.__init__(self)

    def run_pass(self, state: Any) -> bool:
        """Hand lowering a library; by itself it would open one of numba's."""
        state.library = LinkedLibrary(state.targetctx.codegen(), state.func_id.func_qualname)  # type: ignore[no-untyped-call]
        return False


class LinkedCompiler(CompilerBase):
    """numba's compiler, with a library of ours."""

    def define_pipelines(self) -> list[PassManager]:
        """Return the one way to compile."""
        passes = DefaultPassBuilder.define_nopython_pipeline(self.state)
        passes.add_pass_after(OpenLinkedLibrary, AnnotateTypes)
        passes.finalize()
        return [passes]


# Options of kernels that only other kernels call. Other versions of numba compile as usual, more slowly.
LINKED: dict[str, Any] = {**OPTIONS, "no_cpython_wrapper": True}
if numba.__version__.startswith("0.68."):
    LINKED["pipeline_class"] = LinkedCompiler


def jit(function: F) -> F:
    """Compile a kernel that Python calls; NUMBA_DISABLE_JIT=1 leaves it in Python, to debug it."""
    compiled: F = numba.njit(**OPTIONS, cache=True)(function)
    return compiled


def jit_bare(function: F) -> F:
    """Compile a kernel that Python calls and that makes no array: references are not counted, see `bare`."""
    compiled: F = numba.njit(**{**OPTIONS, "_nrt": False}, cache=True)(function)
    return compiled


def inner(function: F) -> F:
    """Compile a kernel that only other kernels call: no Python wrapper, and no separate cache entry.

    Unpacking the big tuples for Python is most of what compiling a small kernel costs.
    """
    compiled: F = numba.njit(**LINKED)(function)
    return compiled


def kernel_of(function: F) -> F:
    """Return a kernel that Python calls as one for other kernels, without the wrapper that takes so long."""
    return inner(getattr(function, "py_func", function))


def bare(function: F) -> F:
    """Compile a kernel that only other kernels call and that makes no array: references are not counted.

    Counting is what most of a short kernel's time goes into where it is handed tuples of many arrays. numba
    spells the option with an underscore (as of 0.68) and refuses to compile what would allocate.
    """
    compiled: F = numba.njit(**{**LINKED, "_nrt": False})(function)
    return compiled


def folded(function: F) -> F:
    """Compile a bare kernel into its callers: handing over tuples of many arrays costs more than a step."""
    compiled: F = numba.njit(**{**LINKED, "_nrt": False, "forceinline": True})(function)
    return compiled


def calling(function: F, **kernels: Callable[..., object]) -> F:
    """Return the same function with some of those that it calls replaced, by the names it has for them.

    So what the shield's functions call can be compiled without them knowing of a compiler.
    """
    code, names = function.__code__, {**function.__globals__, **kernels}
    return cast("F", FunctionType(code, names, function.__name__, function.__defaults__))


def kernel_sources(package: Path = PACKAGE) -> dict[Path, bytes]:
    """Return the files that compiled code comes from, with their contents, in a fixed order.

    These are the modules that import this one or numba, and what they import of the shield.
    """
    texts = {path: path.read_bytes() for path in sorted(package.rglob("*.py"))}
    kernels = {
        path
        for path, text in texts.items()
        if re.search(rb"^(from|import) (chary\._compile|numba)\b", text, re.M)
    }
    shared = {
        name
        for path in kernels
        for name in re.findall(rb"^from chary\.shield\.(\w+) import", texts[path], re.M)
    }
    kernels |= {package / "shield" / f"{name.decode()}.py" for name in shared}
    return {path: texts[path] for path in sorted(kernels)}


def drop_stale_cache(package: Path = PACKAGE) -> bool:
    """Delete compiled code older than its sources, and return whether there was any.

    numba looks at the file of the function it loads and not at those of the functions inside it (as of
    0.68), so a change in one kernel would leave its callers as they were.
    """
    stamp = package / "__pycache__" / "kernels.sha256"
    # Where the package cannot be read or written, numba caches elsewhere: there is nothing of ours to delete.
    with contextlib.suppress(OSError):
        sources = kernel_sources(package)
        digest = hashlib.sha256(b"".join(sources.values())).hexdigest()
        if stamp.exists() and stamp.read_text() == digest:
            return False
        for path in sources:
            place = path.parent / "__pycache__"
            for compiled in [*place.glob("*.nbi"), *place.glob("*.nbc")]:
                compiled.unlink(missing_ok=True)
        stamp.parent.mkdir(exist_ok=True)
        stamp.write_text(digest)
        return True
    return False


drop_stale_cache()
