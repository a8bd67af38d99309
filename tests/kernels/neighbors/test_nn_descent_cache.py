"""The cached search of pynndescent: the same graph, and no compilation in a second process."""

import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import numba
import numpy as np
import pytest
from numba.core.base import BaseContext
from pynndescent import NNDescent, pynndescent_
from pynndescent.distances import squared_euclidean

from lle.kernels.neighbors import nn_descent_cache
from lle.kernels.neighbors.knn import cell_neighbors

SEARCH = """
import numpy as np
from lle.kernels.neighbors import nn_descent_cache as descent
from lle.kernels.neighbors.knn import cell_neighbors
X = np.random.default_rng(5).normal(size=(2000, 12)).astype(np.float32)
lists = cell_neighbors(X, np.arange(2000), 8, 100, 3)
found = descent.cached_search(descent.version("pynndescent"))
print(sum(found.stats.cache_hits.values()), len(descent.ORIGINAL.signatures), lists.ids.sum(), lists.distances.sum())
"""


@pytest.fixture
def original():
    """pynndescent without changes."""
    pynndescent_.nn_descent = nn_descent_cache.ORIGINAL
    yield pynndescent_
    pynndescent_.nn_descent = nn_descent_cache.ORIGINAL


def graph(X, k, seed):
    return NNDescent(X, n_neighbors=k, random_state=seed, n_jobs=1).neighbor_graph


def run(program, folder=None, **environment):
    environment = {**os.environ, **environment}
    process = subprocess.run(
        [sys.executable, "-c", program], env=environment, cwd=folder, capture_output=True, text=True, check=True
    )
    return process.stdout.split()


@pytest.mark.slow
def test_second_process_compiles_nothing_and_gives_the_same_graph():
    first, second = run(SEARCH), run(SEARCH)
    assert second[:2] == ["1", "0"]  # read from the cache; pynndescent's own function was not used
    assert first[2:] == second[2:]


@pytest.mark.slow
@pytest.mark.parametrize(("n", "d", "k", "seeds"), [(20_000, 50, 13, [7]), (6000, 20, 9, [1, 7]), (3000, 784, 13, [1])])
def test_graph_equals_that_of_pynndescent(original, n, d, k, seeds):
    """pynndescent processes 16,384 points at a time."""
    for seed in seeds:
        X = np.random.default_rng(seed).normal(size=(n, d)).astype(np.float32)
        expected = graph(X, k, seed)
        nn_descent_cache.use_cached_search()
        actual = graph(X, k, seed)
        original.nn_descent = nn_descent_cache.ORIGINAL
        for ours, theirs in zip(actual, expected, strict=True):
            np.testing.assert_array_equal(ours, theirs)


def test_other_calls_are_passed_to_pynndescent(original, monkeypatch):
    nn_descent_cache.use_cached_search()
    calls = []

    class Called(Exception):
        pass

    def listening(*arguments, **named):
        calls.append(named)
        raise Called

    listening.py_func = nn_descent_cache.ORIGINAL.py_func
    monkeypatch.setattr(nn_descent_cache, "ORIGINAL", listening)
    X = np.random.default_rng(5).normal(size=(300, 6)).astype(np.float32)
    for settings in ({"metric": "manhattan"}, {"verbose": True}, {"low_memory": False}, {"n_jobs": 2}):
        with pytest.raises(Called):
            NNDescent(X, n_neighbors=5, random_state=3, **{"n_jobs": 1, **settings})
    assert len(calls) == 4


@pytest.mark.slow
def test_functions_without_compilation_are_not_replaced():
    """A debugger needs functions that are not compiled."""
    program = (
        "import pynndescent.pynndescent_ as p; from lle.kernels.neighbors import nn_descent_cache as d; "
        "d.use_cached_search(); print(p.nn_descent is d.ORIGINAL)"
    )
    assert run(program, NUMBA_DISABLE_JIT="1") == ["True"]


def test_threads_compile_one_after_another_and_restore_numba(monkeypatch):
    usual, compiling, n_compiling, during = BaseContext.add_dynamic_addr, [], [], []

    class Search:
        overloads = ()
        typeof_pyval = staticmethod(type)

        def compile(self, types):
            compiling.append(types)
            n_compiling.append(len(compiling))
            time.sleep(0.1)
            compiling.pop()

        def __call__(self, *arguments):
            during.append(BaseContext.add_dynamic_addr)

    def search(_):
        numba.set_num_threads(1)
        nn_descent_cache._nn_descent(None, 5, None, 50, squared_euclidean)

    monkeypatch.setattr(nn_descent_cache, "cached_search", lambda release: Search())
    with ThreadPoolExecutor(3) as pool:
        list(pool.map(search, range(3)))
    assert n_compiling == [1, 1, 1]
    assert during == [usual] * 3
    assert BaseContext.add_dynamic_addr is usual


@pytest.mark.parametrize("layer", ["workqueue", pytest.param("default", marks=pytest.mark.slow)])
def test_searches_of_several_threads_do_not_end_the_process(tmp_path, layer):
    """Numba would end it ("Concurrent access has been detected"). Other warnings are shown as before."""
    program = """
from concurrent.futures import ThreadPoolExecutor
import numba, warnings, numpy as np
from lle.kernels.neighbors.knn import cell_neighbors
X = np.random.default_rng(5).normal(size=(4000, 12)).astype(np.float32)
def search(seed):
    return cell_neighbors(X, np.arange(4000), 8, 100, seed).ids.sum()
with ThreadPoolExecutor(3) as pool:
    found = set(pool.map(search, [3] * 6))
with warnings.catch_warnings(record=True) as shown:
    warnings.warn("of the program")
print(numba.threading_layer(), found == {search(3)}, len(shown))
"""
    used, equal, n_shown = run(program, tmp_path, NUMBA_THREADING_LAYER=layer)
    assert (equal, n_shown) == ("True", "1")
    assert used == layer or layer == "default"


def test_numba_does_not_cache_by_itself(tmp_path):
    """If this fails, numba caches functions that take functions as arguments: delete `_without_addresses`."""
    (tmp_path / "program.py").write_text("""
import numba
@numba.njit
def called(function, n):
    return n if n < 2 else called(function, n - 1) + function(called(function, n - 2))
@numba.njit
def double(x):
    return 2 * x
@numba.njit(cache=True)
def caller(x):
    return called(double, x)
caller(5)
""")
    run("import runpy; runpy.run_path('program.py')", tmp_path, NUMBA_CACHE_DIR="cache")
    assert not list(tmp_path.rglob("*.nbc"))


@pytest.mark.parametrize(("name", "value"), [("KNOWN", (*nn_descent_cache.KNOWN, "more")), ("UNTESTED_NUMBA", (0, 61))])
def test_unknown_release_is_not_changed(original, monkeypatch, name, value):
    monkeypatch.setattr(nn_descent_cache, name, value)
    nn_descent_cache.use_cached_search()
    assert original.nn_descent is nn_descent_cache.ORIGINAL


@pytest.mark.slow
def test_cell_search_uses_the_cached_functions(original):
    X = np.random.default_rng(5).normal(size=(600, 6)).astype(np.float32)
    cell_neighbors(X, np.arange(600), 5, 100, 3)
    assert original.nn_descent is not nn_descent_cache.ORIGINAL
