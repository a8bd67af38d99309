"""The solver without a factor: cost of a product, and number of products on given data.

    python -m tests.benchmarks.polynomials SOURCE ... [--other STORE] [--n-components M] [--tols T ...]
                                            [--max-degrees N] [--factored]

A SOURCE is the store of a finished run of method lle, or a square matrix I - W as SciPy's save_npz writes it. The first
table has seconds and bytes a second of one product of A by columns. The second has the products of A or A' with a block
until convergence, and seconds of the clock and of the processor: from random vectors and, for a store, from the run's
own embedding and that of ``--other`` (a run on the same input with another graph). ``--factored`` solves with the LU of
A too, and gives the angle between both subspaces in degrees.
"""

import argparse
import os
import time
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
from scipy.linalg import subspace_angles
from scipy.sparse import csr_array, load_npz

from lle.core.machine import available_cores, memory_limit, reproducible_environment
from lle.kernels.eigensolver.normal_operator import NormalOperator
from lle.kernels.eigensolver.polynomial import chebyshev_roots
from lle.kernels.eigensolver.solve import Spectrum, bottom_eigenpairs
from lle.storage.store import Store
from tests.benchmarks.factors import stored_factor

F64 = npt.NDArray[np.float64]
SEED = 1


def product_rows(factor: csr_array, widths: tuple[int, ...] = (1, 4, 8, 16, 32), degree: int = 20) -> Iterator[str]:
    """Seconds of one product with a block of so many columns, and the bytes that it moves at least."""
    rows, n = factor.shape
    roots = chebyshev_roots(degree, 1.0, 10.0)
    with NormalOperator(factor, available_cores()) as operator:
        for width in widths:
            block = np.random.default_rng(SEED).standard_normal((n, width))
            operator.approximate_inverse(block, roots[:1], "normal")
            started = time.perf_counter()
            operator.approximate_inverse(block, roots, "normal")
            seconds = (time.perf_counter() - started) / degree / 2
            moved = 12 * factor.nnz + 8 * width * (rows + 3 * n)
            yield f"| {width} | {1e3 * seconds:.1f} | {1e3 * seconds / width:.2f} | {moved / seconds / 1e9:.1f} |"


def solved(
    factor: csr_array, m: int, tol: float, method: str, start: F64 | None, max_degrees: int
) -> tuple[Spectrum, str]:
    """(pairs, table cells: products of A or A', seconds, processor seconds, converged, residual)."""
    clock, processor = time.perf_counter(), time.process_time()
    spectrum = bottom_eigenpairs(
        factor, m, method=method, pin=None, cost_matrix=lambda: csr_array(factor.T @ factor), tol=tol,
        max_memory=memory_limit("auto"), n_threads=available_cores(), initial=start, max_degrees=max_degrees,
    )  # fmt: skip
    seconds = f"{time.perf_counter() - clock:.1f} | {time.process_time() - processor:.1f}"
    converged = "yes" if spectrum.converged else "no"
    return spectrum, f"{2 * spectrum.stats.n_degrees:,} | {seconds} | {converged} | {spectrum.residuals.max():.0e}"


def solve_rows(
    source: str, other_store: str | None, m: int, tols: list[float], max_degrees: int, *, factored: bool
) -> Iterator[str]:
    """One row for each tolerance and start."""
    factor, starts = load(source), {"random": None}
    if not source.endswith(".npz"):
        for name, store in (("its own embedding", source), ("another graph's embedding", other_store)):
            if store is not None:
                order = Store(source).read_all("original_index")
                starts[name] = Store(store).read_all("embedding")[order][:, :m]
    exact = None
    if factored:
        exact, cells = solved(factor, m, min(tols), "factored", None, max_degrees)
        yield f"| {source} | {min(tols):g} | LU of A | {cells} | |"
    for tol in tols:
        for name, start in starts.items():
            spectrum, cells = solved(factor, m, tol, "polynomial", start, max_degrees)
            angle = "" if exact is None else f"{np.rad2deg(subspace_angles(spectrum.vectors, exact.vectors).max()):.0e}"
            yield f"| {source} | {tol:g} | {name} | {cells} | {angle} |"


def load(source: str) -> csr_array:
    """A of a store or of a file."""
    return csr_array(load_npz(source)) if source.endswith(".npz") else stored_factor(source)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sources", nargs="+")
    parser.add_argument("--other")
    parser.add_argument("--n-components", type=int, default=5)
    parser.add_argument("--tols", type=float, nargs="+", default=[1e-8])
    parser.add_argument("--max-degrees", type=int, default=20_000, help="largest number of products of M with a block")
    parser.add_argument("--factored", action="store_true")
    arguments = parser.parse_args()
    os.environ.update(reproducible_environment())
    print("| columns | ms a product | ms a column | GB/s |\n|---|---|---|---|")
    print("\n".join(product_rows(load(arguments.sources[0]))), flush=True)
    print("\n| source | tolerance | start | products of A | seconds | processor s | converged | residual | degrees |")
    print("|---|---|---|---|---|---|---|---|---|")
    for source in arguments.sources:
        for row in solve_rows(
            source, arguments.other, arguments.n_components, arguments.tols, arguments.max_degrees,
            factored=arguments.factored,
        ):  # fmt: skip
            print(row, flush=True)


if __name__ == "__main__":
    main()
