"""Processor seconds of each stage of a run on the reference core: a formula of the sizes of the run.

The coefficients were measured on that core. Two things depend on the data and not only on their sizes: the fill-in of a
factorization, and how many values of `reg` are tried.
"""

import math
from functools import cache
from typing import NamedTuple

from ..config.models import Config
from ..core.compiler_cache import is_compiled
from ..engine.plan import Layout
from ..engine.plan_sizes import n_cells, neighbor_method
from ..kernels.eigensolver.costs import multigrid_seconds
from ..kernels.neighbors.cells import TREE_FEATURES
from ..kernels.trial_embedding import trial_points
from ..search.cell_groups import N_GROUPS_EACH, first_target
from ..stages.measure_quality import geodesic_sources

COMPILE_SECONDS = 25.0
"""Processor seconds that the search of pynndescent takes to compile, once on a machine."""

SCALER_SECONDS = 1.5
"""Processor seconds of the import of dask-ml, which only `preprocess.scale: standard` needs."""

SURFACE_FEATURES = 3
"""Data of up to this number of features count as surfaces: the factorization has little fill-in, and M few entries."""

HERE = ("serial", "local")
"""Kinds of clusters whose workers use this machine's cache of compiled functions."""


class Work(NamedTuple):
    """Processor seconds on the reference core: of tasks that run one after the other, and of blocks in parallel."""

    serial: float
    parallel: float = 0.0


class Sizes(NamedTuple):
    """The sizes of a run that the formulas of its stages use."""

    n: int
    d: int
    k: int
    m: int
    n_blocks: int
    sample: int
    layout: Layout
    config: Config


def ingest(s: Sizes) -> Work:
    scaler = SCALER_SECONDS if s.config.preprocess.scale == "standard" else 0.0
    return Work(scaler + 2e-7 * s.n, s.n * (3e-7 + 1.2e-8 * s.d))


def order_points(s: Sizes) -> Work:
    cells = n_cells(s.n)
    return Work(0.1 + 1.5e-4 * cells, s.n * (1.4e-6 + 2.8e-8 * s.d + 2.5e-10 * cells * s.d))


def find_neighbors(s: Sizes) -> Work:
    method = neighbor_method(s.config.neighbors.method, s.n, s.d)
    if s.config.neighbors.precomputed is not None:
        return Work(0.0, 1e-6 * s.n * s.k)
    all_pairs = _among_all(s.n, s.n, s.d)
    if method == "kdtree":  # in many dimensions a tree is searched whole
        return Work(0.0, min(_in_tree(s.n, s.n, s.d, s.k), 20 * all_pairs))
    if method == "brute":
        return Work(0.0, all_pairs)
    groups_each = N_GROUPS_EACH if s.n > 1.5 * first_target(s.layout, s.k) else 1
    return Work(COMPILE_SECONDS if compiles_search(s) else 0.0, s.n * (2e-5 + 5e-8 * s.d) * groups_each)


def _in_tree(n_queries: int, n: int, d: int, k: int) -> float:
    """Seconds of a search for k neighbours in a tree of n points of d features."""
    return n_queries * 2.8e-7 * (k + 1) * math.pow(1.6, min(d, 40) - 3) * math.pow(n / 40_000, 0.08)


def _among_all(n_queries: int, n: int, d: int) -> float:
    """Seconds of a search by the distances to all n points."""
    return 1e-5 * n_queries + n_queries * n * (4e-9 + 5e-11 * d)


def compiles_search(s: Sizes) -> bool:
    """Whether the run is the first on this machine that searches with pynndescent."""
    method = neighbor_method(s.config.neighbors.method, s.n, s.d)
    needed = s.config.neighbors.precomputed is None and method == "pynndescent"
    return needed and s.config.execution.cluster.kind in HERE and not _search_is_compiled()


@cache
def _search_is_compiled() -> bool:
    return is_compiled("nn_descent_cache.cached_search")


def mend_graph(s: Sizes) -> Work:
    return Work(0.03 + 1.05e-7 * s.n * s.k, s.n * (9e-7 + 1.1e-7 * s.d))


def solve_weights(s: Sizes) -> Work:
    trial = 0.0
    if s.config.weights.reg == "auto":
        t = trial_points(s.n, s.d)
        trial = 3e-7 * s.n + t * (3e-5 if s.d <= SURFACE_FEATURES else 2.8e-4 + 7e-7 * s.d)
    exchange = s.n * (3e-7 + 1.5e-8 * s.d) if s.n_blocks > 1 else 0.0
    measured = s.n * (1.5e-6 + 2.3e-9 * s.k * s.d)
    return Work(trial, s.n * s.k**2 * (1.6e-8 + 2.6e-10 * s.d) + measured + exchange)


def local_factors(s: Sizes) -> Work:
    return Work(0.0, s.n * s.k**2 * (8e-8 + 3e-10 * s.d))


def assemble_cost(s: Sizes) -> Work:
    fill = 1 + 0.45 * min(max(s.d - SURFACE_FEATURES, 0), 4)  # neighbours of neighbours are few on a surface
    rows = 1 if s.config.method in ("lle", "laplacian") else 2
    return Work(0.0, s.n * (s.k + 1) ** 1.7 * 6.9e-8 * fill * rows)


def solve_embedding(s: Sizes) -> Work:
    """The time of the factorization of I - W, or of multigrid if it is faster or requested; other methods take longer.

    The fill-in was measured on Swiss rolls of 1,000 to 1,000,000 points and on ten-dimensional data.
    """
    if s.config.method == "pca":
        return Work(0.4 + 1e-9 * s.n * s.d**2)
    entries = s.n * (s.k + 1)
    without_factor = multigrid_seconds(entries, 1, on_m=s.config.method != "lle")
    if s.config.eigensolver.method == "multigrid":
        seconds = without_factor
    elif s.d <= SURFACE_FEATURES:
        fill, gflop = s.n * 3.8 * s.k * (s.n / 1000) ** 0.17, 1.3 * (s.n / 1e5) ** 1.53 * (s.k / 12) ** 2
        seconds = entries / 2.8e6 + gflop / 17 + 2e-7 * fill
    else:
        fill, gflop = 2.2e6 * (s.n / 3000) ** 1.9, 1.5 * (s.n / 3000) ** 2.85
        seconds = min(entries / 2.8e6 + gflop / 17 + 3e-8 * fill, without_factor)
    return Work(0.01 + seconds * (1 + s.m / 20) * (1 if s.config.method == "lle" else 1.6))


def measure_quality(s: Sizes) -> Work:
    of_sample = s.sample * (1e-5 + 7.6e-7 * s.d)
    geodesics = 1.6e-8 * geodesic_sources(s.config, s.n) * s.n * s.k
    if s.d <= SURFACE_FEATURES:
        return Work(0.05 + of_sample + geodesics, 6e-7 * s.n)
    return Work(0.02 + of_sample + geodesics, s.sample * s.n * (9e-9 + 7.5e-11 * s.d))


def transform(s: Sizes) -> Work:
    """Placing the rows of a run with `input.fit_sample`; `s.layout.n_points` rows are fitted."""
    fitted = s.layout.n_points
    search = _in_tree(s.n, fitted, s.d, s.k) if s.d <= TREE_FEATURES else _among_all(s.n, fitted, s.d)
    boxes = s.n * n_cells(fitted) * (8e-8 + 1.5e-8 * s.d)
    read = s.n_blocks * fitted * (1.5e-6 + 1e-9 * s.d)
    weights = s.n * (5e-7 + 4e-9 * s.k * s.d + s.k**2 * (1.6e-8 + 2.6e-10 * s.d))
    return Work(0.0, search + boxes + read + weights)


def write_report(s: Sizes) -> Work:
    return Work(0.8 + 4e-6 * min(s.n, 1_000_000) if s.config.output.report else 0.01)


FORMULAS = {
    formula.__name__: formula
    for formula in (
        ingest, order_points, find_neighbors, mend_graph, solve_weights, local_factors, assemble_cost, solve_embedding,
        measure_quality, transform, write_report,
    )
}  # fmt: skip

MAIN_STEPS = frozenset({
    "ingest.read", "order_points.sort", "order_points.gather", "find_neighbors.search", "find_neighbors.search_cells",
    "mend_graph.sample_exact", "mend_graph.analyse", "mend_graph.apply", "solve_weights.choose_reg",
    "solve_weights.solve", "local_factors.solve", "assemble_cost.contribute", "assemble_cost.merge",
    "solve_embedding.solve", "measure_quality.count", "measure_quality.geodesics", "transform.embed",
    "write_report.write",
})  # fmt: skip
"""The steps that take most of the seconds of their stage."""
