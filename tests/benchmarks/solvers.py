"""The methods of the eigensolver against each other and against other libraries: seconds, bytes, eigenvalues.

    python -m tests.benchmarks.solvers [SOURCE ...] [--routes factored shift_invert multigrid]
                                       [--reg R] [--peers] [--n-components M] [--max-seconds S]

A SOURCE is the size of a Swiss roll, cubeD:SIZE for a cube of D dimensions, or the store of a finished run of method
lle. Every row is a process of its own that loads A, predicts, solves and prints what it took. `--peers` adds SciPy's
eigsh, scikit-learn's ARPACK route, and LOBPCG with pyamg's smoothed aggregation, on the same matrix. Ratios are to the
first route.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array, load_npz, save_npz
from scipy.sparse.linalg import eigsh, lobpcg

from lle.core.machine import available_cores, library_environment, memory_limit
from lle.engine import subprocess_call
from lle.kernels.eigensolver.problem import Problem
from lle.kernels.eigensolver.rayleigh_ritz import Tolerances
from lle.kernels.eigensolver.solve import bottom_eigenpairs
from lle.kernels.eigensolver.solvers import prediction_of
from lle.kernels.graph.connectivity import closed_point
from lle.linalg.component_matrices import leading_components
from lle.storage.store import Store
from tests.benchmarks.factors import SEED, cube_points, neighbor_factor, roll_points, stored_factor

F64 = npt.NDArray[np.float64]

ROUTES = ("factored", "shift_invert", "multigrid")
PEERS = ("scipy eigsh(M, sigma=0)", "scikit-learn arpack", "pyamg + lobpcg")


def solve_route(factor: csr_array, candidates: F64, route: str, n_components: int) -> dict[str, Any]:
    """Predict, then solve with one method; the route gpu is multigrid on a GPU."""
    method = "multigrid" if route == "gpu" else route
    problem = Problem(
        factor,
        n_components,
        closed_point(factor),
        cache(lambda: csr_array(factor.T @ factor)),
        Tolerances(1e-8),
        memory_limit("auto"),
        available_cores(),
        max_steps=60,
        is_square=True,
        candidates=lambda: candidates,
        on_gpu=route == "gpu",
    )
    predicted = prediction_of(problem, method)
    processor = time.process_time()
    started = time.perf_counter()
    spectrum = bottom_eigenpairs(problem, method)
    seconds = time.perf_counter() - started
    return {
        "predicted_nnz": predicted.factor_nnz,
        "predicted_bytes": predicted.predicted_bytes,
        "predicted_seconds": float(predicted.seconds),
        "basis": predicted.basis,
        "nnz": spectrum.stats.factor_nnz,
        "bytes": subprocess_call.peak_bytes(),
        "replaced_by": spectrum.stats.method if spectrum.stats.requested_failed else "",
        "seconds": seconds,
        "values": spectrum.eigenvalues.tolist(),
        "residual": float(spectrum.residuals.max()),
        "converged": bool(spectrum.converged),
        "n_steps": spectrum.stats.n_steps,
        "n_solves": spectrum.stats.n_solves,
        "processor": time.process_time() - processor,
    }


def solve_peer(factor: csr_array, peer: str, n_components: int) -> dict[str, Any]:
    """The same pairs of M with another library."""
    M = csr_array(factor.T @ factor)
    start = np.random.default_rng(SEED).standard_normal((factor.shape[1], n_components + 3))
    started = time.perf_counter()
    vectors = _peer(peer)(M, n_components, start)
    seconds = time.perf_counter() - started
    vectors = vectors - vectors.mean(axis=0)
    Q, _ = np.linalg.qr(vectors)
    singular = np.linalg.svd(factor @ Q, compute_uv=False)
    return {
        "bytes": subprocess_call.peak_bytes(),
        "seconds": seconds,
        "values": np.sort(singular**2)[:n_components].tolist(),
    }


def _peer(name: str) -> Callable[[csr_array, int, Any], Any]:
    return {PEERS[0]: _scipy, PEERS[1]: _sklearn, PEERS[2]: _pyamg}[name]


def _scipy(M: csr_array, m: int, start: Any) -> Any:
    return eigsh(M, m + 1, sigma=0.0, v0=start[:, 0])[1][:, 1:]


def _sklearn(M: csr_array, m: int, start: Any) -> Any:
    from sklearn.manifold._locally_linear import null_space

    return null_space(M, m, k_skip=1, eigen_solver="arpack", tol=1e-6, max_iter=100, random_state=0)[0]


def _pyamg(M: csr_array, m: int, start: Any) -> Any:
    from pyamg import smoothed_aggregation_solver

    solver = smoothed_aggregation_solver(M.tocsr())
    block = np.column_stack([np.ones(len(start)), start[:, :m]])
    return lobpcg(M, block, M=solver.aspreconditioner(), tol=1e-10, maxiter=400, largest=False)[1][:, 1:]


def measure(source: str, method: str, n_components: int, max_seconds: float) -> dict[str, Any] | None:
    """One row in a separate process; None if it failed or took too long."""
    command = [sys.executable, "-m", "tests.benchmarks.solvers", "--one", method, source, "--n-components"]
    try:
        completed = subprocess.run(
            [*command, str(n_components)], capture_output=True, text=True, timeout=max_seconds, check=True
        )
    except (subprocess.TimeoutExpired, subprocess.CalledProcessError) as error:
        lines = (getattr(error, "stderr", None) or "").strip().splitlines()
        print(f"{method}: {lines[-1] if lines else 'longer than ' + str(max_seconds) + ' s'}", file=sys.stderr)
        return None
    result: dict[str, Any] = json.loads(completed.stdout.splitlines()[-1])
    return result


def solve_one(source: str, method: str, n_components: int) -> dict[str, Any]:
    """The function that `measure` runs."""
    if source.endswith(".npz"):
        factor, candidates = csr_array(load_npz(source)), np.load(source.replace(".npz", ".npy"))
    else:
        store, factor = Store(source), stored_factor(source)
        n = factor.shape[0]
        candidates = leading_components(store, np.arange(n), n)
    if method in PEERS:
        return solve_peer(factor, method, n_components)
    return solve_route(factor, candidates, method, n_components)


def rows(source: str, names: list[str], n_components: int, max_seconds: float, reg: float = 1e-3) -> list[str]:
    """Table rows of one source."""
    with tempfile.TemporaryDirectory() as folder:
        path, label = source, Path(source).stem
        shape, _, size = source.rpartition(":")
        if size.isdigit():
            path, label = f"{folder}/factor.npz", f"{shape} {int(size):,}".strip()
            points = cube_points(int(size), int(shape.removeprefix("cube"))) if shape else roll_points(int(size))
            save_npz(path, neighbor_factor(points, reg), compressed=False)
            np.save(f"{folder}/factor.npy", (points - points.mean(axis=0)) / points.std(axis=0))
        lines, first = [], None
        for name in names:
            result = measure(path, name, n_components, max_seconds)
            first = first or result
            used = (result or {}).get("replaced_by", "")
            lines.append(f"| {label} | {name}{f' (failed, by {used})' * bool(used)} | {_cells(result, first)} |")
    return lines


def _cells(result: dict[str, Any] | None, first: dict[str, Any] | None) -> str:
    if result is None or first is None:
        return "did not finish | | | | | | | |"
    off = max(abs(a / b - 1) for a, b in zip(result["values"], first["values"], strict=True))
    ratios = f"{result['seconds'] / first['seconds']:.2f} | {result['bytes'] / first['bytes']:.2f} | {off:.0e}"
    if "basis" not in result:
        return f"| | {result['seconds']:.1f} | | {result['bytes'] / 1e9:.2f} | {ratios}"
    nnz = f"{result['predicted_nnz'] / 1e6:.1f} / {result['nnz'] / 1e6:.1f}"
    seconds = f"{result['predicted_seconds']:.1f} / {result['seconds']:.1f}"
    if result["n_steps"]:
        nnz = f"{result['n_steps']} steps"
    suffix = "" if result["converged"] else " (not converged)"
    size = f"{result['predicted_bytes'] / 1e9:.2f} / {result['bytes'] / 1e9:.2f}"
    return f"{nnz} | {result['residual']:.0e}{suffix} | {seconds} | {result['processor']:.1f} | {size} | {ratios}"


HEAD = (
    "| points | route | factor's entries in millions: predicted / found | residual | seconds: predicted / found "
    "| processor seconds | GB: predicted / peak of the process | time ratio | memory ratio | eigenvalues off |\n"
    "|---|---|---|---|---|---|---|---|---|---|"
)


def main() -> None:
    """Print the table, row by row."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sources", nargs="*", default=["10000", "100000", "1000000"])
    parser.add_argument("--routes", nargs="*", default=list(ROUTES))
    parser.add_argument("--reg", type=float, default=1e-3)
    parser.add_argument("--peers", action="store_true")
    parser.add_argument("--n-components", type=int, default=2)
    parser.add_argument("--max-seconds", type=float, default=600.0)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        print(json.dumps(solve_one(arguments.sources[0], arguments.one, arguments.n_components)))
        return
    print(HEAD, flush=True)
    names = [*arguments.routes, *(PEERS if arguments.peers else ())]
    for source in arguments.sources:
        print("\n".join(rows(source, names, arguments.n_components, arguments.max_seconds, arguments.reg)), flush=True)


if __name__ == "__main__":
    import os

    for variable, value in library_environment().items():
        os.environ.setdefault(variable, value)
    main()
