"""Cache the compiled search of pynndescent on disk, so that each process does not compile it for about 25 seconds.

Numba caches no machine code of functions that take functions as arguments (pynndescent passes the distance to
`nn_descent`) or that query the number of threads. Here the distance and one thread are fixed inside the function, so
it can be cached. The compiled code is pynndescent's own, so the graph is equal to the last bit. Importing this module
takes seconds; only the search of large groups imports it.
"""

import contextlib
import functools
import inspect
import threading
import warnings
from collections.abc import Iterator
from importlib.metadata import version
from types import FunctionType, ModuleType

import numba
from numba.core.base import BaseContext
from numba.core.registry import CPUDispatcher
from numba.types import voidptr
from pynndescent import pynndescent_
from pynndescent.distances import squared_euclidean

KNOWN = (
    "data",
    "n_neighbors",
    "rng_state",
    "max_candidates",
    "dist",
    "n_iters",
    "delta",
    "init_graph",
    "rp_tree_init",
    "leaf_array",
    "low_memory",
    "verbose",
    "kernel",
)
"""The parameters of `nn_descent` in the supported releases; other releases are not cached."""
ORIGINAL = pynndescent_.nn_descent
COMPILING, SEARCHING = threading.Lock(), threading.Lock()
UNTESTED_NUMBA = (0, 69)
"""First release of numba with which `_without_addresses` was not tested; from it on pynndescent is used unchanged.
`test_numba_does_not_cache_by_itself` fails with the first release that needs no patch."""


def use_cached_search() -> None:
    """Make pynndescent call the cached search, if its release and that of numba are supported.

    Its warning about ids of -1, which `select_nearest` removes, is ignored from now on in this process:
    warnings.catch_warnings restores wrong filters if threads overlap.
    """
    warnings.filterwarnings("ignore", "Failed to correctly find n_neighbors", module="pynndescent")
    if _is_known():
        pynndescent_.nn_descent = _nn_descent


def search_lock() -> contextlib.AbstractContextManager[object]:
    """A lock for searches if they may not overlap: numba's layer `workqueue` ends a process with two at one time.

    Numba takes this layer where it finds neither OpenMP nor TBB.
    """
    numba.get_num_threads()  # starts the layer
    return SEARCHING if numba.threading_layer() == "workqueue" else contextlib.nullcontext()


def _is_known() -> bool:
    """Whether functions are compiled at all (NUMBA_DISABLE_JIT), by a tested numba, with the known parameters."""
    inner = getattr(pynndescent_, "nn_descent_internal", None)
    compiled = isinstance(ORIGINAL, CPUDispatcher) and isinstance(inner, CPUDispatcher)
    tested = (numba.version_info.major, numba.version_info.minor) < UNTESTED_NUMBA
    return compiled and tested and tuple(inspect.signature(ORIGINAL.py_func).parameters) == KNOWN


def _nn_descent(*arguments: object, **keywords: object) -> object:
    """The cached search for squared Euclidean distances in one thread; otherwise the function of pynndescent."""
    bound = inspect.signature(ORIGINAL.py_func).bind(*arguments, **keywords)
    bound.apply_defaults()
    arguments_by_name = bound.arguments
    options = tuple(arguments_by_name.pop(name) for name in ("dist", "rp_tree_init", "low_memory", "verbose"))
    if options != (squared_euclidean, True, True, False) or numba.get_num_threads() != 1:
        return ORIGINAL(*arguments, **keywords)
    with COMPILING:  # a worker may have several threads
        search = cached_search(version("pynndescent"))
        types = tuple(map(search.typeof_pyval, arguments_by_name.values()))
        if types not in search.overloads:
            with _without_addresses():
                search.compile(types)
    return search(*arguments_by_name.values())


@functools.cache
def cached_search(release: str) -> CPUDispatcher:
    """`nn_descent` for squared Euclidean distances, compiled once per machine and release of pynndescent."""

    @numba.njit(nogil=True, cache=True)
    def search(  # type: ignore[no-untyped-def]
        data, n_neighbors, rng_state, max_candidates, n_iters, delta, init_graph, leaf_array, kernel
    ):
        assert len(release) > 0  # the cache key includes variables of the closure, but not the functions called
        return _outer(
            data,
            n_neighbors,
            rng_state,
            max_candidates,
            squared_euclidean,
            n_iters,
            delta,
            init_graph,
            True,
            leaf_array,
            True,
            False,
            kernel,
        )

    return search


def _in_one_thread(function: CPUDispatcher, **callees: CPUDispatcher) -> CPUDispatcher:
    """A pynndescent function, not yet compiled, with a fixed number of threads and with these callees."""
    threads = ModuleType("numba")
    threads.get_num_threads = _one  # type: ignore[attr-defined]
    original = function.py_func
    names = {**original.__globals__, "numba": threads, **callees}
    return numba.njit(FunctionType(original.__code__, names, original.__name__, original.__defaults__))


@numba.njit  # type: ignore[untyped-decorator]
def _one() -> int:
    return 1


@contextlib.contextmanager
def _without_addresses() -> Iterator[None]:
    """Compile functions that are arguments without their addresses. Numba resolves their calls by type.

    Nothing reads these addresses, and machine code with addresses cannot be cached.
    """
    original = BaseContext.add_dynamic_addr

    def add_dynamic_addr(context: BaseContext, builder: object, address: int, info: str) -> object:
        if info != CPUDispatcher.__name__:
            return original(context, builder, address, info)
        return context.get_constant_null(voidptr)

    BaseContext.add_dynamic_addr = add_dynamic_addr
    try:
        yield
    finally:
        BaseContext.add_dynamic_addr = original


_outer = ORIGINAL
"""`nn_descent` for one thread; pynndescent's own function if its release is not supported."""
if _is_known():
    _outer = _in_one_thread(ORIGINAL, nn_descent_internal=_in_one_thread(pynndescent_.nn_descent_internal))
