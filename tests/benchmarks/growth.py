"""Growth of the cost of each solver with n on a cube of dimension d: measurements, fitted powers, check, prediction.

    python -m tests.benchmarks.growth [--dimensions 2 3 5 10] [--sizes 5000 10000 20000 40000] [--check 80000]

For the LU of A the analysis alone gives entries and work, without factoring. For polynomials of M the number of
products follows from sqrt(lambda_max / lambda_m) of a solved problem; it is too high where polynomials of A can be
used. The powers are fitted to ``--sizes``; ``--check`` compares the forecast with the analysis of a larger one.
"""

import argparse
import time
from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array

from lle.core.machine import available_cores, memory_limit
from lle.kernels.eigensolver import davidson, factor_cost, memory, methods
from lle.kernels.eigensolver.factorization import canonical
from lle.kernels.eigensolver.pardiso import FactorSize
from lle.kernels.eigensolver.pseudo_inverse import PinnedLU
from lle.kernels.eigensolver.rayleigh_ritz import largest_eigenvalue
from lle.kernels.eigensolver.solve import bottom_eigenpairs
from lle.kernels.graph.connectivity import closed_classes
from tests.benchmarks.factors import cube_factor

PRODUCTS_PER_ROOT = 3.4
"""Products until convergence, over sqrt(lambda_max / lambda_m), as measured on MNIST with five vectors."""


class Cost(NamedTuple):
    """Cost of one size."""

    nnz: float
    gflop: float
    n_bytes: float
    products: float


def cost(n_points: int, dimension: int, solve: bool, n_components: int = 2) -> Cost:
    """Analysis of the LU of A, and the products that polynomials of M would need."""
    factor, threads = canonical(cube_factor(n_points, dimension)), available_cores()
    pin = int(np.flatnonzero(closed_classes(factor).class_of_point == 0)[0])
    with PinnedLU(factor, pin, threads) as inverse:
        size = inverse.size
    products = float("nan")
    if solve:
        spectrum = bottom_eigenpairs(
            factor, n_components, method="auto", pin=pin, cost_matrix=lambda: csr_array(factor.T @ factor), tol=1e-6,
            max_memory=memory_limit("auto"), n_threads=threads, initial=None, max_degrees=20_000,
        )  # fmt: skip
        ratio = largest_eigenvalue(factor, methods.SEED) / spectrum.eigenvalues[-1]
        products = PRODUCTS_PER_ROOT * float(np.sqrt(ratio))
    n_bytes = memory.krylov_size(factor, n_components, size)[2]
    return Cost(size.nnz, max(size.gflop, factor_cost.MIN_GFLOP), n_bytes, products)


def fit(sizes: list[int], values: list[float]) -> tuple[float, float]:
    """(power, constant) of constant n^power, least squares in logarithms."""
    power, intercept = np.polyfit(np.log(sizes), np.log(values), 1)
    return float(power), float(np.exp(intercept))


def study(dimension: int, sizes: list[int], check: int, targets: tuple[int, ...]) -> list[str]:
    """Table rows of one dimension."""
    costs = [cost(n, dimension, solve=True) for n in sizes]
    bytes_per_row = (costs[-1].n_bytes - factor_cost.BYTES_PER_ENTRY * costs[-1].nnz) / sizes[-1]  # grows with the rows
    lines = []
    laws = {name: fit(sizes, [getattr(c, name) for c in costs]) for name in Cost._fields}
    powers = [f"{laws[name][0]:.2f}" for name in ("nnz", "gflop")] + ["", f"{laws['products'][0]:.2f}"]
    lines.append(f"| {dimension} | power of n | {' | '.join(powers)} | |")
    if check:
        measured = cost(check, dimension, solve=False)
        predicted = [laws[name][1] * check ** laws[name][0] for name in ("nnz", "gflop")]
        predicted.append(factor_cost.BYTES_PER_ENTRY * predicted[0] + bytes_per_row * check)
        off = " | ".join(f"{value / actual:.2f}" for value, actual in zip(predicted, measured[:3], strict=True))
        lines.append(f"| {dimension} | forecast / found at {check:,} | {off} | | |")
    for n in targets:
        nnz, gflop, _, products = (laws[name][1] * n ** laws[name][0] for name in Cost._fields)
        n_bytes = factor_cost.BYTES_PER_ENTRY * nnz + bytes_per_row * n
        width = davidson.block_width(2)
        size = FactorSize(int(nnz), int(n_bytes), gflop)
        by_factor = factor_cost.factor_seconds(size, 13 * n, methods.TYPICAL_BLOCKS, 2)
        by_products = products * factor_cost.product_seconds(13 * n, width, 2)
        lines.append(
            f"| {dimension} | {n:,} | {nnz / 1e6:,.0f} M | {gflop:,.0f} | {n_bytes / 1e9:,.1f} GB | {products:,.0f} "
            f"| {by_factor:,.0f} s / {by_products:,.0f} s |"
        )
    return lines


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dimensions", type=int, nargs="*", default=[2, 3, 5, 10])
    parser.add_argument("--sizes", type=int, nargs="*", default=[5_000, 10_000, 20_000, 40_000])
    parser.add_argument("--check", type=int, default=80_000)
    arguments = parser.parse_args()
    print(
        "| d | n | entries of L + U | GFlop | memory of the LU route | products of M "
        "| seconds on 2 cores: LU / polynomials of M |"
    )
    print("|---|---|---|---|---|---|---|")
    started = time.perf_counter()
    for dimension in arguments.dimensions:
        print("\n".join(study(dimension, arguments.sizes, arguments.check, (10**5, 10**6, 10**7))), flush=True)
    print(f"\n{time.perf_counter() - started:.0f} s")


if __name__ == "__main__":
    main()
