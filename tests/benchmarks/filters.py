"""The filters by themselves: what a product costs, and how many it takes from different starts.

    python -m tests.benchmarks.filters STORE [--other STORE] [--n-components M] [--samples N ...]

STORE is a finished run of method lle with one component. The first table has seconds and bytes a second of one product
of M by columns; the second the products until convergence from random vectors of different widths, from the run's own
embedding, from that of ``--other`` (a run on the same input with another graph), and from coarse solves on samples,
extended by barycentric weights; the third what scaling M by its diagonal does to lambda_max and the wanted values.
"""

import argparse
import time
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array, dia_array

from pipeline.core.machine import available_cores, memory_limit
from pipeline.kernels.eigensolver import methods
from pipeline.kernels.eigensolver.chebyshev import (
    block_width,
    chebyshev_filter,
    filtered_subspace,
    first_state,
    largest_eigenvalue,
)
from pipeline.kernels.eigensolver.normal_operator import NormalOperator
from pipeline.kernels.eigensolver.rayleigh_ritz import Tolerances
from pipeline.kernels.eigensolver.solve import bottom_eigenpairs
from pipeline.kernels.factors.cost_matrix import local_factor
from pipeline.kernels.factors.lle_weights import barycenter_weights
from pipeline.kernels.neighbors.knn import brute_neighbors
from pipeline.storage.store import Store
from tests.benchmarks.factors import stored_factor

F64 = npt.NDArray[np.float64]
SEED = 1
ROWS = 500
N_NEIGHBORS = 12


def product_rows(factor: csr_array, widths: tuple[int, ...] = (1, 4, 8, 16, 32), degree: int = 20) -> Iterator[str]:
    """Seconds of one product with a block of so many columns, and the bytes that it has to move at least."""
    largest, (rows, n) = largest_eigenvalue(factor, SEED), factor.shape
    with NormalOperator(factor, available_cores()) as operator:
        for width in widths:
            block = np.random.default_rng(SEED).standard_normal((n, width))
            chebyshev_filter(operator, block, 2, largest / 10, largest)
            started = time.perf_counter()
            chebyshev_filter(operator, block, degree, largest / 10, largest)
            seconds = (time.perf_counter() - started) / degree
            moved = 2 * 12 * factor.nnz + 8 * width * (2 * rows + 5 * n)
            yield f"| {width} | {1e3 * seconds:.1f} | {1e3 * seconds / width:.2f} | {moved / seconds / 1e9:.1f} |"


def products(factor: csr_array, start: F64, n_wanted: int, tol: float, columns: int) -> tuple[int, float]:
    """Products until convergence from the start block (n, b), and seconds."""
    started = time.perf_counter()
    with NormalOperator(factor, available_cores()) as operator:
        found = filtered_subspace(
            factor, operator, n_wanted, first_state(factor, start), Tolerances(tol, largest_eigenvalue(factor, SEED)),
            columns, 200_000, lambda state, last: None,
        )  # fmt: skip
    return found.n_degrees, time.perf_counter() - started


def padded(vectors: F64 | None, n: int, width: int) -> F64:
    """A random block (n, width), the given vectors in front."""
    block = np.random.default_rng(SEED).standard_normal((n, width))
    if vectors is not None:
        given = vectors[:, :width]
        block[:, : given.shape[1]] = np.sqrt(n) * given / np.linalg.norm(given, axis=0)
    return block


def coarse_vectors(points: F64, n_sample: int, n_vectors: int) -> F64:
    """Bottom vectors of LLE on a sample, taken to all points (n, n_vectors) by barycentric weights."""
    n = len(points)
    chosen = np.sort(np.random.default_rng(SEED).permutation(n)[:n_sample])
    own = brute_neighbors(points[chosen], np.arange(n_sample), points[chosen], np.arange(n_sample), N_NEIGHBORS)
    factor = local_factor(own.ids, weights_of(points[chosen], points[chosen], own.ids), 0, n_sample)
    solved = bottom_eigenpairs(
        csr_array(factor), n_vectors, method="auto", pin=None, cost_matrix=lambda: csr_array(factor.T @ factor),
        tol=1e-6, max_memory=memory_limit("auto"), sigma=0.0, n_threads=available_cores(), initial=None,
        max_degrees=20_000,
    )  # fmt: skip
    vectors = np.empty((n, n_vectors))
    for start in range(0, n, 20 * ROWS):
        queries = points[start : start + 20 * ROWS]
        near = brute_neighbors(queries, np.full(len(queries), -1), points[chosen], np.arange(n_sample), N_NEIGHBORS)
        weights = weights_of(queries, points[chosen], near.ids)
        vectors[start : start + len(queries)] = np.einsum("nk,nkm->nm", weights, solved.vectors[near.ids])
    vectors[chosen] = solved.vectors
    return vectors


def weights_of(queries: F64, points: F64, indices: npt.NDArray[np.integer]) -> F64:
    """Barycentric weights of queries over points[indices], some hundred rows at a time."""
    found = [
        barycenter_weights(queries[at : at + ROWS], points[indices[at : at + ROWS]],
                           np.ones(indices[at : at + ROWS].shape, bool), 1e-3, "trace").weights
        for at in range(0, len(queries), ROWS)
    ]  # fmt: skip
    return np.concatenate(found)


def start_rows(store: Store, other: Store | None, m: int, samples: list[int], tols: list[float]) -> Iterator[str]:
    """Products and seconds from every start."""
    factor, width = stored_factor(store.url), block_width(m)
    n, order = factor.shape[1], store.read_all("original_index")
    points = store.read_all("points").astype(np.float64)
    starts = {f"random, {columns} columns": (padded(None, n, columns), 6 * columns) for columns in (width, 2 * width)}
    starts["the same graph's embedding"] = padded(store.read_all("embedding")[order], n, width), 6 * width
    if other is not None:
        starts["another graph's embedding"] = padded(other.read_all("embedding")[order], n, width), 6 * width
    for n_sample in samples:
        began = time.perf_counter()
        vectors = coarse_vectors(points, n_sample, m)
        name = f"a sample of {n_sample:,} points, extended ({time.perf_counter() - began:.0f} s)"
        starts[name] = padded(vectors, n, width), 6 * width
    for tol in tols:
        for name, (block, columns) in starts.items():
            count, seconds = products(factor, block, m, tol, columns)
            yield f"| {tol:g} | {name} | {count:,} | {seconds:.0f} |"


def scaling_row(factor: csr_array, m: int) -> str:
    """lambda_max over lambda_m of M, and of D^-1/2 M D^-1/2 with the diagonal D of M."""
    diagonal = np.asarray(factor.multiply(factor).sum(axis=0)).ravel()
    scale = 1 / np.sqrt(diagonal)
    scaled = csr_array(factor @ dia_array((scale[None], [0]), shape=(len(scale), len(scale))))
    cells = []
    for matrix, null in ((factor, None), (scaled, np.sqrt(diagonal / diagonal.sum()))):
        found = bottom_eigenpairs(
            matrix, m, method="shift_invert", pin=0, cost_matrix=lambda matrix=matrix: csr_array(matrix.T @ matrix),
            tol=1e-6, max_memory=memory_limit("auto"), sigma=0.0, n_threads=available_cores(), initial=None,
            max_degrees=20_000, null=null,
        )  # fmt: skip
        largest = largest_eigenvalue(matrix, methods.SEED)
        cells += [f"{largest:.2f}", f"{found.eigenvalues[-1]:.2e}", f"{np.sqrt(largest / found.eigenvalues[-1]):,.0f}"]
    return f"| {' | '.join(cells)} |"


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("store")
    parser.add_argument("--other")
    parser.add_argument("--n-components", type=int, default=5)
    parser.add_argument("--samples", type=int, nargs="*", default=[3500])
    parser.add_argument("--tols", type=float, nargs="+", default=[1e-8, 1e-4])
    given = parser.parse_args()
    factor, m = stored_factor(given.store), given.n_components
    print("| columns | ms a product | ms a column | GB/s |\n|---|---|---|---|")
    print("\n".join(product_rows(factor)), flush=True)
    print("\n| tolerance | start | products | seconds |\n|---|---|---|---|", flush=True)
    other = Store(given.other) if given.other else None
    for row in start_rows(Store(given.store), other, m, given.samples, given.tols):
        print(row, flush=True)
    print("\n| lambda_max | lambda_m | root of their ratio | scaled: lambda_max | lambda_m | root of their ratio |")
    print(f"|---|---|---|---|---|---|\n{scaling_row(factor, m)}")


if __name__ == "__main__":
    main()
