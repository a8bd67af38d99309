"""Memory and time of each method for the lowest eigenpairs of M = A' A, predicted before it starts.

The symbolic analysis of a factorization gives its size exactly, but its time and memory grow with the factor. So large
matrices are first judged by pieces. The entries of the factor of a piece with s rows grow like s^p: p is near 1.1 on
surfaces, 1.45 in three dimensions, 1.8 for speech vectors in 32 dimensions. Two pieces give p. The predicted seconds
are accurate to about 10 % on surfaces. Elsewhere they are mostly 0.25 to 1.5 of the exact ones, but they can be far
off: patches of photographs (120,000 x 64) 0.07 of 2,714 s, where the analysis alone takes 56 s and 2 GiB; flights
(326,832 x 10) 13 times 30 s. The work in operations has its own exponent. Other memory of PARDISO grows linearly with
the rows.

Seconds are calculated from operation counts, not measured, so the choice of a method does not depend on the load of the
machine.
"""

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import breadth_first_order

from ...core.arrays import Float64, Ints
from ...core.errors import NotEnoughMemory, gib
from . import pardiso
from .davidson import block_width
from .factorization import analyse, canonical
from .pardiso import FactorSize
from .problem import LongFactorization, Problem
from .rayleigh_ritz import EPS, ROWS_AT_ONCE, TINY
from .rows import cut_bounds, first_cuts

MIN_PIECE, MAX_PIECE, SHARE_OF_PIECE, RATIO_OF_PIECES = 10_000, 40_000, 0.2, 4
"""The larger piece has this share of the rows, within bounds, and RATIO_OF_PIECES times those of the smaller one."""
MIN_ROWS = 50_000
"""Below this number of rows the analysis takes seconds and little memory on any data."""
BYTES_PER_ENTRY, FIXED_BYTES = 8, 20 * 2**20
MIN_GFLOP = 1e-3
"""Resolution of the work that PARDISO reports."""
HOPELESS = 4
"""If a factor is predicted to be this many times too large, its matrix is not analysed."""
MAX_BLOCK = 8
"""Largest block of a solve: eight columns take about twice the time of one."""
HIERARCHY_BYTES, NORMAL_BYTES = 28, 72
"""Bytes for an entry of A, or of M, in the hierarchy of multigrid, before it is known. That of A has then twice the
entries of A: fewer on surfaces, two to three times in three dimensions, three to five times in many. That of M takes 20
to 30 bytes, and its setup up to 65."""
SETUP_SHARE = 1.8
"""Largest memory of the setup on A, relative to its hierarchy: 1.6 on surfaces, 1.8 in three dimensions, 1.2 in 14."""
VECTOR_BYTES, NORMAL_VECTOR_BYTES = 11 * 4 + 3 * 8, 16 * 8
"""Bytes for a point and a column of a block while multigrid on A, or on M, solves with FEW_CYCLES cycles. Each further
cycle keeps a block."""
SHARED_BLOCKS, SHARED_CYCLES, TYPICAL_FILL, LEAST_FILL = 5, 12, 1.25, 0.3
"""If the rows lie in several processes: blocks of the basis, most cycles of a solve, and entries of the second level
relative to A, mostly and at least, before they are known."""
COPIED_SHARE = 0.1
"""Rows that a process copies from others, relative to its own: 0.04 on surfaces, 0.11 in three dimensions, 0.4 in five
(eight processes of 20,000 rows), 0.7 in ten (750,000 rows); less with more rows."""
SOLVER_BYTES = 2**28
"""Memory of a process that solves, with its libraries, for any problem size."""
FEW_CYCLES, ENOUGH_CYCLES, MOST_CYCLES = 6, 16, 32
"""Largest numbers of cycles of a solve with little memory, with enough for most data, and with more. Delay vectors of
speech (1,750,000 x 32) need 12 for a residual of 1e-2; rolls, cubes and tables 4 to 8. A cube of five dimensions
(100,000 points, reg 1e-3) uses all: with fewer cycles block Davidson takes several times as many steps, with more
hardly fewer."""

GFLOP_PER_SECOND = 8.0
"""Speed of one thread in the numerical factorization."""
SOLVED_PER_SECOND = 1.0e8
"""Entries of a factor that one thread processes per second when it solves for a block of four columns."""
TYPICAL_BLOCKS = 10
"""Blocks of vectors that a method with a factor typically solves for."""
ANALYSED_PER_SECOND = 1.5e6
"""Entries of the matrix that the analysis processes per second; the ordering runs on one thread."""
MULTIGRID_SECONDS, SETUP_SECONDS = 1e-5, 1e-6
"""Processor seconds for an entry of A: of a whole solve by multigrid on A or on M, and of the setup on A. Those of a
solve on A were 0.3 to 1.7e-5 on rolls, cubes, ECG and speech vectors, images and tables of 30,000 to 1,000,000
points."""
TYPICAL_COMPLEXITY = 2.0
"""Entries of the hierarchies of these solves, relative to A, at most."""
SOLVE_CYCLES = 120
"""Cycles of these solves, for blocks of at most MAX_BLOCK vectors."""
LEAST_STEPS = 6
"""Steps after which the errors show the rate of convergence."""
MULTIGRID_POINTS = 2_000
"""Below this number of points a factorization takes less time than multigrid on any data, so auto does not try it."""
SHORT_SECONDS = 2.0
"""Factorizations up to this time are always made at once."""


def krylov_size(factor: csr_array, m: int, size: FactorSize) -> tuple[int, int, int]:
    """(columns of a block, columns of the basis, bytes of everything that a Krylov space of M^+ needs)."""
    rows, n = factor.shape
    width = min(max(m + 1, 4), MAX_BLOCK)
    columns = 2 * m + 6 * width
    vectors = columns * (n + min(rows, ROWS_AT_ONCE)) + 12 * width * n
    return width, columns, _bytes(factor) + size.n_bytes + 8 * vectors


def preconditioned_size(factor: csr_array, m: int, size: FactorSize, max_memory: int) -> tuple[int, int, int]:
    """(columns of a block, columns of the basis, bytes of everything) of block Davidson with a factor.

    Its solves take eight blocks.
    """
    width = max(m + 1, 3)
    fixed = _bytes(factor) + size.n_bytes + 8 * 8 * width * factor.shape[1]
    return width, *_basis_size(factor, width, fixed, max_memory)


def multigrid_size(
    factor: csr_array, m: int, max_memory: int, normal_entries: int = 0, hierarchy_bytes: int = 0
) -> tuple[int, int, int, int]:
    """(columns of a block, of the basis, bytes of everything, most cycles of a solve) of block Davidson with multigrid.

    Of the memory that is left, three blocks of the basis come first, then ENOUGH_CYCLES, further blocks, more cycles.

    The hierarchy is that of A, or of M with ``normal_entries`` entries. If its bytes are 0, they are estimated, and the
    setup counts.
    """
    n, width = factor.shape[1], block_width(m)
    expected_bytes = NORMAL_BYTES * normal_entries if normal_entries else HIERARCHY_BYTES * factor.nnz
    matrices = _bytes(factor) + (hierarchy_bytes or expected_bytes)
    fixed = matrices + n * width * (NORMAL_VECTOR_BYTES if normal_entries else VECTOR_BYTES)
    cycle_bytes, basis_bytes = n * width * (8 if normal_entries else 4), 8 * n * 3 * width
    cycles = min(max(FEW_CYCLES + (max_memory - fixed - basis_bytes) // cycle_bytes, FEW_CYCLES), ENOUGH_CYCLES)
    fixed += (cycles - FEW_CYCLES) * cycle_bytes
    columns, n_bytes = _basis_size(factor, width, fixed, max_memory)
    if cycles == ENOUGH_CYCLES:
        more = min(max((max_memory - n_bytes) // cycle_bytes, 0), MOST_CYCLES - ENOUGH_CYCLES)
        n_bytes, cycles = n_bytes + more * cycle_bytes, cycles + more
    setup = 0 if hierarchy_bytes else int((1 if normal_entries else SETUP_SHARE) * expected_bytes)
    return width, columns, max(n_bytes, _bytes(factor) + setup), cycles


def shared_size(
    n: int, n_copied: int, entries: int, m: int, hierarchy_bytes: int = 0, fill: float = TYPICAL_FILL
) -> tuple[int, int, int, int]:
    """As ``multigrid_size``, for ``n`` rows of A with ``entries`` entries in one of several processes.

    It copies ``n_copied`` rows of a vector from others. The second level has ``fill`` times the entries. Widths and
    cycles do not depend on these, so that a result has the same bytes for any number of processes.

    Setups of ten-dimensional points, ECG and speech vectors (150,000 to 800,000 rows, fill 0.35 to 4.1) took 35 to 50
    bytes for an entry of the second level, and 25 for one of A with those of copied rows (2026-11-28).
    """
    width, factor = block_width(m), 2 * 12 * entries  # A and A'
    setup = 0 if hierarchy_bytes else int((25 * (1 + n_copied / n) + 50 * fill) * entries)
    column = VECTOR_BYTES + 8 + 4 * (SHARED_CYCLES - FEW_CYCLES) + 8 * SHARED_BLOCKS
    vectors = (n * column + n_copied * 12) * width
    solve = (hierarchy_bytes or int((8 + 16 * fill) * entries)) + vectors
    return width, SHARED_BLOCKS * width, factor + 48 * n + 16 * n_copied + max(setup, solve), SHARED_CYCLES


def shared_bytes(n: int, row_entries: int, m: int, n_components: int, n_processes: int) -> int:
    """Memory of the largest process if the rows of A lie in several: one of these, or the one that stores the result.

    Each reads the component of all ``n`` points.
    """
    bounds = cut_bounds(n)
    share = int(np.diff(bounds[first_cuts(len(bounds) - 1, n_processes)]).max())
    size = shared_size(share, int(COPIED_SHARE * share), share * row_entries, m)[2]
    return max(16 * n + size, 8 * n * (2 * n_components + 4))


def least_bytes(n_points: int, row_entries: int, m: int, *, square: bool) -> int:
    """Least bytes of an eigensolve without a factor, if its hierarchy is not larger than expected.

    ``row_entries`` are those of A for each point, at most. M has fewer entries than an A that is not square.
    """
    width = block_width(m)
    if not square:
        return n_points * (4 * 12 * row_entries + width * (NORMAL_VECTOR_BYTES + 3 * 8))
    hierarchy, vectors = HIERARCHY_BYTES * row_entries, width * (VECTOR_BYTES + 3 * 8)
    return n_points * (12 * row_entries + int(max(hierarchy + vectors, SETUP_SHARE * hierarchy)))


def refuse_large(name: str, matrix: csr_array, matrix_type: int, problem: Problem) -> None:
    """Raise NotEnoughMemory before the analysis, if pieces show that the factor is too large.

    For A also LongFactorization: the analysis of A can follow during multigrid, that of M would need too much memory.
    """
    if matrix.shape[0] < MIN_ROWS or (problem.analyses and matrix_type in problem.analyses):
        return  # the analysis needs little memory, or is known
    expected = extrapolated(matrix, matrix_type, problem.pin, problem.n_threads)
    if expected is None:
        return
    if expected.n_bytes > HOPELESS * problem.max_memory:
        raise _not_enough(name, expected.n_bytes, problem.max_memory, "about ")
    seconds = factor_seconds(expected, problem.factor.nnz, problem.n_threads)
    if matrix_type == pardiso.GENERAL and problem.time_limit.is_exceeded_by(seconds):
        raise LongFactorization(name, seconds, is_estimate=True)


def require_memory(name: str, predicted: int, allowed: int) -> None:
    """Raise NotEnoughMemory if a method needs more than it may use."""
    if predicted > allowed:
        raise _not_enough(name, predicted, allowed, "")


def extrapolated(matrix: csr_array, matrix_type: int, center: int, n_threads: int) -> FactorSize | None:
    """Predicted size of the factor of a square matrix (n, n), from two pieces around the row ``center``.

    None if no prediction is possible: the matrix is small, PARDISO is missing, or too few rows are connected with
    ``center`` for a piece.
    """
    if matrix.shape[0] < MIN_ROWS or not pardiso.is_available():
        return None
    reached = breadth_first_order(matrix, center, directed=True, return_predecessors=False)
    n_rows = min(max(int(SHARE_OF_PIECE * matrix.shape[0]), MIN_PIECE), MAX_PIECE)
    if len(reached) < n_rows:
        return None
    small, large = (
        _analysed(matrix, matrix_type, np.sort(reached[:size]), n_threads)
        for size in (n_rows // RATIO_OF_PIECES, n_rows)
    )
    steps = np.log(matrix.shape[0] / n_rows) / np.log(RATIO_OF_PIECES)
    nnz, gflop = large.nnz * (large.nnz / small.nnz) ** steps, large.gflop * (large.gflop / small.gflop) ** steps
    bytes_per_row = max(large.n_bytes - BYTES_PER_ENTRY * large.nnz - FIXED_BYTES, 0) / n_rows
    n_bytes = FIXED_BYTES + BYTES_PER_ENTRY * nnz + bytes_per_row * matrix.shape[0]
    return FactorSize(int(nnz), int(n_bytes), float(gflop))


def factor_seconds(size: FactorSize, nnz: int, n_threads: int) -> float:
    """Seconds to analyse a matrix of ``nnz`` entries, factor it, and apply M^+ to the blocks of a whole solve.

    M^+ takes two solves with the LU of A. A solve with the Cholesky factor of M takes as long, as it reads the factor
    twice.
    """
    work = size.gflop / GFLOP_PER_SECOND + 2 * TYPICAL_BLOCKS * size.nnz / SOLVED_PER_SECOND
    return float(nnz / ANALYSED_PER_SECOND + work / n_threads)


def multigrid_seconds(nnz: int, n_threads: int, *, on_m: bool) -> float:
    """Seconds of a whole solve by multigrid for A with ``nnz`` entries; they hardly depend on the data."""
    setup = 0.0 if on_m else SETUP_SECONDS * nnz  # mostly on one thread
    return setup + MULTIGRID_SECONDS * nnz / n_threads


def cycle_seconds(nnz: int, width: int, n_threads: int) -> float:
    """Seconds of a cycle for a block of ``width`` vectors, for A with ``nnz`` entries.

    >>> [round(cycle_seconds(12_000_000, width, 2), 6) for width in (4, 8, 20)]
    [0.5, 0.5, 1.25]
    """
    return MULTIGRID_SECONDS * nnz / n_threads / SOLVE_CYCLES * max(width / MAX_BLOCK, 1.0)


def steps_left(n_steps: int, errors: Float64, bounds: Float64) -> float:
    """Steps until all vector errors (m,) meet their bounds, if each step divides them as ``n_steps`` did on average.

    They begin at one. 0 for the first steps, which do not show the rate.

    >>> steps_left(8, np.array([1e-2, 1e-7]), np.array([1e-6, 1e-6]))
    16.0
    >>> steps_left(8, np.array([1.0]), np.array([1e-6])) > 1e12
    True
    """
    if n_steps < LEAST_STEPS:
        return 0.0
    rates = -np.log(np.clip(errors, TINY, 1 - EPS))
    return float(max((n_steps * (-np.log(bounds) / rates - 1)).max(), 0.0))


def patience_seconds(nnz: int, n_threads: int, *, square: bool) -> float:
    """Longest factorization in seconds that is made without trying multigrid first, for A with ``nnz`` entries."""
    return max(SHORT_SECONDS, multigrid_seconds(nnz, n_threads, on_m=not square))


def _analysed(matrix: csr_array, matrix_type: int, rows: Ints, n_threads: int) -> FactorSize:
    factorization = analyse(canonical(matrix[rows][:, rows]), matrix_type, n_threads)
    factorization.release()
    size = factorization.size
    return size._replace(gflop=max(size.gflop, MIN_GFLOP))


def _not_enough(name: str, predicted: int, allowed: int, about: str) -> NotEnoughMemory:
    other = "" if name.startswith("multigrid") else " or set eigensolver.method to multigrid"
    return NotEnoughMemory(
        f"{name} needs {about}{gib(predicted)} ({predicted:,} bytes), max_memory allows {gib(allowed)} "
        f"({allowed:,} bytes)",
        advice=f"raise eigensolver.max_memory{other}",
    )


def _basis_size(factor: csr_array, width: int, fixed: int, max_memory: int) -> tuple[int, int]:
    """(columns of the basis of block Davidson, bytes with the ``fixed`` ones): what fits, three to ten blocks.

    More blocks need fewer steps.
    """
    n = factor.shape[1]
    columns = min(max(min((max_memory - fixed) // (8 * n), 10 * width), 3 * width), n - 1)
    return columns, fixed + 8 * n * columns


def _bytes(matrix: csr_array) -> int:
    return int(matrix.data.nbytes + matrix.indices.nbytes + matrix.indptr.nbytes)
