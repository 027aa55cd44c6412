"""The one way kernels are compiled: cached on disk, IEEE arithmetic, no reordering of sums."""

from __future__ import annotations

import atexit
import hashlib
import logging
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import FunctionType
from typing import Any, TypeVar, cast

if "NO_COLOR" in os.environ:
    # Where colorama is installed, numba ends every program by resetting the terminal's colours (as of 0.68).
    os.environ.setdefault("NUMBA_DISABLE_ERROR_MESSAGE_HIGHLIGHTING", "1")

import llvmlite.binding as llvm  # type: ignore[import-untyped]
import numba
from numba.core import config as numba_config
from numba.core.caching import FunctionCache, IndexDataCacheFile, NullCache
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import CompilerBase, DefaultPassBuilder
from numba.core.compiler_machinery import AnalysisPass, PassManager, register_pass
from numba.core.dispatcher import Dispatcher
from numba.core.typed_passes import AnnotateTypes

__all__ = ["bare", "calling", "folded", "inner", "jit", "jit_bare", "kernel_of"]

F = TypeVar("F", bound=Callable[..., object])

# No wrapper for C callers: nothing calls from C, and it would double the code of every signature.
# `_nrt` is explicit, since a kernel compiled on the way to another takes over what that one has. Kernels let
# go of the interpreter's lock: they hold no objects, so that a plan can be made while other threads go on.
OPTIONS: dict[str, Any] = {
    "fastmath": False,
    "error_model": "numpy",
    "nogil": True,
    "no_cfunc_wrapper": True,
    "_nrt": True,
}

PACKAGE = Path(__file__).parent

# Modules of kernels, and what these import that may be compiled into them.
WITH_KERNELS = re.compile(rb"^(from|import) (chary\._compile|numba)\b", re.M)
USED_BY_KERNELS = re.compile(rb"^from chary\.(shield|simulation)\.(\w+) import", re.M)

# Its values are set when numba is imported, which a type checker cannot see.
config: Any = numba_config
log = logging.getLogger("chary")


def kernel_sources(package: Path = PACKAGE) -> dict[Path, bytes]:
    """Return the files that compiled code comes from, with their contents, in a fixed order.

    These are the modules that import this one or numba, and what they import of the shield and of the loop:
    functions, constants and tuples that kernels use.
    """
    texts = {path: path.read_bytes() for path in sorted(package.rglob("*.py"))}
    found: set[Path] = set()
    new = {path for path, text in texts.items() if WITH_KERNELS.search(text)}
    while new:
        found |= new
        names = {
            (folder.decode(), f"{name.decode()}.py")
            for path in new
            for folder, name in re.findall(USED_BY_KERNELS, texts[path])
        }
        new = {package.joinpath(*each) for each in names} & texts.keys() - found
    return {path: texts[path] for path in sorted(found)}


def digest_of(package: Path = PACKAGE) -> str:
    """Return a digest of all that compiled code is made from: its sources, and how numba is told to compile.

    numba looks at the file of the function it loads and not at those of the functions inside it, nor at the
    level of optimisation (as of 0.68): a change in one kernel would leave its callers as they were.
    """
    sources = kernel_sources(package)
    settings = (config.OPT, config.BOUNDSCHECK, config.DEBUGINFO_DEFAULT)
    parts = [repr(settings).encode(), *sources.values()]
    return hashlib.sha256(b"".join(hashlib.sha256(part).digest() for part in parts)).hexdigest()


@cache
def digest() -> str:
    """Return the digest of this package, computed once."""
    return digest_of()


class KernelCache(FunctionCache):
    """Compiled code on disk, where numba keeps it, and used only with the sources that it was made from.

    A file is named after its kernel, so that the code of new sources replaces that of old ones.
    """

    def __init__(self, function: Callable[..., object]) -> None:
        super().__init__(function)  # type: ignore[no-untyped-call]
        tag = f"{sys.implementation.cache_tag}{getattr(sys, 'abiflags', '')}"
        name = f"{function.__module__}.{function.__qualname__}.{tag}".replace("<", "").replace(">", "")
        stamp = digest(), self._impl.locator.get_source_stamp()
        self._cache_file = IndexDataCacheFile(self._cache_path, name, stamp)

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Return the code that is kept; without it numba compiles, which takes so long that it is said."""
        found = super().load_overload(sig, target_context)  # type: ignore[no-untyped-call]
        if found is None:
            announce()
        return found


@cache
def announce() -> None:
    """Say on a terminal, once, that kernels are being compiled; the log's level "error" switches it off."""
    text = "chary compiles its kernels for this computer, once: about a minute. Later starts load them."
    log.info(text)
    if sys.stderr is not None and sys.stderr.isatty() and log.isEnabledFor(logging.WARNING):
        # Through print, which progress bars on the same terminal move up; the log has its own stream.
        print(text, file=sys.stderr, flush=True)


def cache_for(function: Callable[..., object]) -> FunctionCache | NullCache:
    """Return where the code of a kernel is kept: in a temporary folder or not at all where it has to be."""
    try:
        return KernelCache(function)
    except RuntimeError:
        # numba's error where it finds no folder that it may write to (as of 0.68).
        use_temporary_cache()
    try:
        return KernelCache(function)
    except RuntimeError:
        return NullCache()


@cache
def use_temporary_cache() -> None:
    """Have numba keep compiled code in a folder that is deleted at the end, if one can be made, and say so.

    Nobody else can write to it. The processes that this one starts find it in the environment.
    """
    try:
        folder = tempfile.mkdtemp(prefix="chary-kernels-")
    except OSError:
        where = "nowhere"
    else:
        where = "in a temporary folder"
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        os.environ["NUMBA_CACHE_DIR"] = config.CACHE_DIR = folder
    log.warning(
        "Compiled code is kept %s, since neither %s nor a cache in the home folder can be written, and every "
        "start compiles again for about a minute. Set NUMBA_CACHE_DIR to a folder that can be written.",
        where,
        PACKAGE,
    )


def kept(function: Any) -> Any:
    """Have the code of a compiled kernel kept on disk; with NUMBA_DISABLE_JIT=1 there is none."""
    dispatcher: Any = function if isinstance(function, Dispatcher) else None
    if dispatcher is not None:
        dispatcher._cache = cache_for(dispatcher.py_func)
    return function


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
    compiled: F = kept(numba.njit(**OPTIONS)(function))
    return compiled


def jit_bare(function: F) -> F:
    """Compile a kernel that Python calls and that makes no array: references are not counted, see `bare`."""
    compiled: F = kept(numba.njit(**{**OPTIONS, "_nrt": False})(function))
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
