"""Growth of the LU of A with n on a cube of dimension d: analyses, fitted powers, check, prediction.

    python -m tests.benchmarks.growth [--dimensions 2 3 5 10] [--sizes 5000 10000 20000 40000] [--check 80000]

The analysis alone gives entries and work, without factoring. The powers are fitted to ``--sizes``; ``--check`` compares
the forecast with the analysis of a larger one. Multigrid takes the seconds that the program predicts.
"""

import argparse
import time
from typing import NamedTuple

import numpy as np

from lle.core.machine import available_cores
from lle.kernels.eigensolver import costs
from lle.kernels.eigensolver.factorization import canonical
from lle.kernels.eigensolver.pardiso import FactorSize
from lle.kernels.eigensolver.pseudo_inverse import PinnedLU
from lle.kernels.graph.connectivity import closed_classes
from tests.benchmarks.factors import cube_points, neighbor_factor


class Cost(NamedTuple):
    """Cost of one size."""

    nnz: float
    gflop: float
    n_bytes: float


def cost(n_points: int, dimension: int, n_components: int = 2) -> Cost:
    """Analysis of the LU of A."""
    factor = canonical(neighbor_factor(cube_points(n_points, dimension)))
    pin = int(np.flatnonzero(closed_classes(factor).class_of_point == 0)[0])
    with PinnedLU(factor, pin, available_cores()) as inverse:
        size = inverse.size
    n_bytes = costs.krylov_size(factor, n_components, size)[2]
    return Cost(size.nnz, max(size.gflop, costs.MIN_GFLOP), n_bytes)


def fit(sizes: list[int], values: list[float]) -> tuple[float, float]:
    """(power, constant) of constant n^power, least squares in logarithms."""
    power, intercept = np.polyfit(np.log(sizes), np.log(values), 1)
    return float(power), float(np.exp(intercept))


def study(dimension: int, sizes: list[int], check: int, targets: tuple[int, ...]) -> list[str]:
    """Table rows of one dimension."""
    found = [cost(n, dimension) for n in sizes]
    bytes_per_row = (found[-1].n_bytes - costs.BYTES_PER_ENTRY * found[-1].nnz) / sizes[-1]  # grows with the rows
    lines = []
    laws = {name: fit(sizes, [getattr(c, name) for c in found]) for name in Cost._fields}
    powers = [f"{laws[name][0]:.2f}" for name in ("nnz", "gflop")] + [""]
    lines.append(f"| {dimension} | power of n | {' | '.join(powers)} | |")
    if check:
        measured = cost(check, dimension)
        predicted = [laws[name][1] * check ** laws[name][0] for name in ("nnz", "gflop")]
        predicted.append(costs.BYTES_PER_ENTRY * predicted[0] + bytes_per_row * check)
        off = " | ".join(f"{value / actual:.2f}" for value, actual in zip(predicted, measured[:3], strict=True))
        lines.append(f"| {dimension} | forecast / found at {check:,} | {off} | |")
    for n in targets:
        nnz, gflop, _ = (laws[name][1] * n ** laws[name][0] for name in Cost._fields)
        n_bytes = costs.BYTES_PER_ENTRY * nnz + bytes_per_row * n
        size = FactorSize(int(nnz), int(n_bytes), gflop)
        by_factor = costs.factor_seconds(size, 13 * n, 2)
        without_factor = costs.multigrid_seconds(13 * n, 2, on_m=False)
        lines.append(
            f"| {dimension} | {n:,} | {nnz / 1e6:,.0f} M | {gflop:,.0f} | {n_bytes / 1e9:,.1f} GB "
            f"| {by_factor:,.0f} s / {without_factor:,.0f} s |"
        )
    return lines


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dimensions", type=int, nargs="*", default=[2, 3, 5, 10])
    parser.add_argument("--sizes", type=int, nargs="*", default=[5_000, 10_000, 20_000, 40_000])
    parser.add_argument("--check", type=int, default=80_000)
    arguments = parser.parse_args()
    print("| d | n | entries of L + U | GFlop | memory of the LU route | seconds on 2 cores: LU / multigrid |")
    print("|---|---|---|---|---|---|")
    started = time.perf_counter()
    for dimension in arguments.dimensions:
        print("\n".join(study(dimension, arguments.sizes, arguments.check, (10**5, 10**6, 10**7))), flush=True)
    print(f"\n{time.perf_counter() - started:.0f} s")


if __name__ == "__main__":
    main()
