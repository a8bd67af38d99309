"""Memory that a method for the lowest eigenpairs of M = A' A needs, predicted before it starts."""

from scipy.sparse import csr_array

from ...core.errors import NotEnoughMemory, gib
from . import factor_cost
from .analysis import analysis_key
from .approximate_inverse import FIRST_STEPS, MAX_STEPS
from .davidson import block_width
from .pardiso import FactorSize
from .problem import Problem
from .rayleigh_ritz import ROWS_AT_ONCE

MAX_BLOCK = 8
"""Largest block of a solve: eight columns take about twice the time of one."""
DAVIDSON_COLUMNS = 80
ARNOLDI_BYTES = 4
"""Bytes of a number in the Arnoldi basis (float32)."""
HIERARCHY_BYTES = 64
HOPELESS = 4
"""If a factor is predicted to be this many times too large, its matrix is not analysed."""


def polynomial_size(factor: csr_array, width: int, max_memory: int) -> tuple[int, int, int]:
    """(columns of the basis, largest number of Arnoldi steps, bytes of everything that polynomial allocates).

    The bytes count A and its transpose, the scaled matrix and its transpose, V and A V, ten more blocks, and the
    Arnoldi basis. Columns and steps are as many as fit in memory, up to DAVIDSON_COLUMNS and MAX_STEPS.
    """
    rows, n = factor.shape
    fixed = 4 * _bytes(factor) + 8 * width * (8 * n + 2 * rows)
    column, step = 8 * (n + rows), ARNOLDI_BYTES * n
    column_limit, steps = max(DAVIDSON_COLUMNS, 4 * width), MAX_STEPS if rows == n else 0
    columns = (max_memory - fixed - step * min(steps, FIRST_STEPS)) // column
    columns = min(max(min(columns, column_limit), 3 * width), n - 1)
    steps = min(max((max_memory - fixed - column * columns) // step, 0), steps, n - 1)
    return columns, steps, fixed + column * columns + step * steps


def krylov_size(factor: csr_array, m: int, size: FactorSize) -> tuple[int, int, int]:
    """(columns of a block, columns of the basis, bytes of everything that a Krylov space of M^+ needs)."""
    rows, n = factor.shape
    width = min(max(m + 1, 4), MAX_BLOCK)
    columns = 2 * m + 6 * width
    vectors = columns * (n + min(rows, ROWS_AT_ONCE)) + 12 * width * n
    return width, columns, _bytes(factor) + size.n_bytes + 8 * vectors


def multigrid_size(factor: csr_array, m: int, max_memory: int) -> tuple[int, int, int]:
    """(columns of a block, columns of the basis, bytes of everything) of block Davidson with multigrid.

    The hierarchy takes HIERARCHY_BYTES for an entry of A while it is set up; it has one to three times the entries of
    A. Its solves take ten blocks in float32. The basis has as many columns as fit in memory, up to five blocks.
    """
    n, width = factor.shape[1], block_width(m)
    fixed = _bytes(factor) + HIERARCHY_BYTES * factor.nnz + n * width * (10 * 4 + 6 * 8)
    columns = (max_memory - fixed) // (16 * n)
    columns = min(max(min(columns, 5 * width), 3 * width), n - 1)
    return width, columns, fixed + 16 * n * columns


def preconditioned_size(factor: csr_array, m: int, size: FactorSize) -> tuple[int, int, int]:
    """(columns of a block, columns of the basis, bytes of everything) of block Davidson with a factor.

    It stores V and A V.
    """
    rows, n = factor.shape
    width = max(m + 1, 4)
    columns = 4 * width
    return width, columns, _bytes(factor) + size.n_bytes + 8 * (columns * (n + rows) + 11 * width * n)


def refuse_hopeless(name: str, matrix: csr_array, matrix_type: int, problem: Problem) -> FactorSize | None:
    """The size of a large factor, known or predicted; None for a small matrix.

    Raises NotEnoughMemory before the analysis, which needs much memory, if the factor is certainly too large.
    """
    if matrix.shape[0] < factor_cost.MIN_ROWS:
        return None
    earlier = problem.hooks.analyses.load(analysis_key(matrix, matrix_type, problem.pin, problem.n_threads))
    if earlier is not None:
        return earlier.size  # the analysis is known, so it needs no memory
    expected = factor_cost.extrapolated(matrix, matrix_type, problem.pin, problem.n_threads)
    if expected is not None and expected.n_bytes > HOPELESS * problem.max_memory:
        raise _not_enough(name, expected.n_bytes, problem.max_memory, "about ")
    return expected


def require_memory(name: str, predicted: int, allowed: int) -> None:
    if predicted > allowed:
        raise _not_enough(name, predicted, allowed, "")


def _not_enough(name: str, predicted: int, allowed: int, about: str) -> NotEnoughMemory:
    other = "" if name == "polynomial" else " or set eigensolver.method to polynomial"
    return NotEnoughMemory(
        f"{name} needs {about}{gib(predicted)} ({predicted:,} bytes), max_memory allows {gib(allowed)} "
        f"({allowed:,} bytes)",
        advice=f"raise eigensolver.max_memory{other}",
    )


def _bytes(matrix: csr_array) -> int:
    return int(matrix.data.nbytes + matrix.indices.nbytes + matrix.indptr.nbytes)
