"""pynndescent's compiled search, kept by numba's cache from one process to the next.

Every process would compile for some 25 seconds, because numba keeps no machine code of functions that take functions
(pynndescent hands the distance to `nn_descent`) or ask for the number of threads. With the distance named inside and
one thread, the same code is kept. What is compiled are pynndescent's own functions, so the graph is the same to the
last bit. Importing this module takes seconds, so only what searches large groups does.
"""

import contextlib
import functools
import inspect
import threading
from collections.abc import Iterator
from importlib.metadata import version
from types import FunctionType, ModuleType
from typing import Any

import numba
from numba.core.base import BaseContext
from numba.core.registry import CPUDispatcher
from numba.types import voidptr
from pynndescent import pynndescent_
from pynndescent.distances import squared_euclidean

KNOWN = (
    "data", "n_neighbors", "rng_state", "max_candidates", "dist", "n_iters", "delta", "init_graph", "rp_tree_init",
    "leaf_array", "low_memory", "verbose", "kernel",
)  # fmt: skip
"""The parameters of `nn_descent` in the releases that this knows; of others nothing is kept."""
ORIGINAL = pynndescent_.nn_descent
COMPILING = threading.Lock()


def keep_compiled() -> None:
    """Have pynndescent's classes call the search that is kept, where it is the one they mean."""
    if _is_known():
        pynndescent_.nn_descent = _nn_descent


def _is_known() -> bool:
    """Whether pynndescent is compiled at all (NUMBA_DISABLE_JIT), and by functions that this knows."""
    inner = getattr(pynndescent_, "nn_descent_internal", None)
    compiled = isinstance(ORIGINAL, CPUDispatcher) and isinstance(inner, CPUDispatcher)
    return compiled and tuple(inspect.signature(ORIGINAL.py_func).parameters) == KNOWN


def _nn_descent(*arguments: Any, **named: Any) -> Any:
    """What pynndescent calls: its own function, but for squared Euclidean distances in one thread."""
    given = inspect.signature(ORIGINAL.py_func).bind(*arguments, **named)
    given.apply_defaults()
    asked = given.arguments
    usual = (asked.pop("dist"), asked.pop("rp_tree_init"), asked.pop("low_memory"), asked.pop("verbose"))
    if usual != (squared_euclidean, True, True, False) or numba.get_num_threads() != 1:
        return ORIGINAL(*arguments, **named)
    with COMPILING:  # a worker may have several threads
        search = kept_search(version("pynndescent"))
        types = tuple(map(search.typeof_pyval, asked.values()))
        if types not in search.overloads:
            with _without_addresses():
                search.compile(types)
    return search(*asked.values())


@functools.cache
def kept_search(release: str) -> Any:
    """`nn_descent` for squared Euclidean distances, compiled once on a machine for each release of pynndescent."""

    @numba.njit(cache=True)  # type: ignore[untyped-decorator]
    def search(
        data: Any, n_neighbors: Any, rng_state: Any, max_candidates: Any, n_iters: Any, delta: Any, init_graph: Any,
        leaf_array: Any, kernel: Any,
    ) -> Any:  # fmt: skip
        assert len(release) > 0  # what a function closes over is part of the cache's key, what it calls is not
        return _outer(
            data, n_neighbors, rng_state, max_candidates, squared_euclidean, n_iters, delta, init_graph, True,
            leaf_array, True, False, kernel,
        )  # fmt: skip

    return search


def _in_one_thread(function: Any, **others: Any) -> Any:
    """A function of pynndescent that knows its number of threads and calls `others`, uncompiled as yet."""
    threads = ModuleType("numba")
    threads.get_num_threads = _one  # type: ignore[attr-defined]
    original = function.py_func
    names = {**original.__globals__, "numba": threads, **others}
    return numba.njit(FunctionType(original.__code__, names, original.__name__, original.__defaults__))


@numba.njit  # type: ignore[untyped-decorator]
def _one() -> int:
    return 1


@contextlib.contextmanager
def _without_addresses() -> Iterator[None]:
    """Compile functions that are arguments without their addresses: numba resolves calls of them by their types.

    Nothing reads the addresses, and machine code that holds one cannot be kept.
    """
    usual = BaseContext.add_dynamic_addr

    def add_dynamic_addr(context: Any, builder: Any, address: int, info: str) -> Any:
        if info != CPUDispatcher.__name__:
            return usual(context, builder, address, info)
        return context.get_constant_null(voidptr)

    BaseContext.add_dynamic_addr = add_dynamic_addr
    try:
        yield
    finally:
        BaseContext.add_dynamic_addr = usual


def _outermost() -> Any:
    """`nn_descent` in one thread; pynndescent's own where this does not know its inner function."""
    if not _is_known():
        return ORIGINAL
    return _in_one_thread(ORIGINAL, nn_descent_internal=_in_one_thread(pynndescent_.nn_descent_internal))


_outer = _outermost()
