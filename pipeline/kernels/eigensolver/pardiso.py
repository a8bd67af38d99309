"""MKL PARDISO through ctypes: analyse a sparse matrix, factor it once, solve with it many times.

Only the library handle comes from the package pypardiso. Its own ``solve`` checks the whole matrix and rebuilds the
index arrays at every call, which costs more than the solve itself.
"""

import ctypes
import importlib
import os
import sys
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from ...core.address_space import free_address_space
from ...core.arrays import Array, Float64
from ...core.errors import LleError, NotEnoughMemory

ANALYSE, FACTOR, SOLVE, RELEASE = 11, 22, 33, -1
GENERAL, POSITIVE_DEFINITE = 11, 2

MKL_PARTS = ("core", "intel_lp64", "intel_thread")
SAVED_BYTES = 4
"""Bytes that an entry takes less in single precision."""
MKL_ADDRESS_BYTES = 512 * 2**20  # libraries, stacks of threads and buffers

ERRORS = {
    -1: "inconsistent input",
    -3: "the reordering failed",
    -4: "a zero or (positive definite matrices) negative pivot",
    -7: "a singular diagonal matrix",
    -8: "more than 2^31 entries",
}


class FactorizationError(LleError):
    """A matrix could not be factored, or its factor is useless (singular, not positive definite)."""

    exit_code = 2


class FactorSize(NamedTuple):
    """Size of a factor according to the analysis, before the factor is computed."""

    nnz: int
    n_bytes: int
    """Peak memory of the factorization, including the input matrix."""
    gflop: float
    """Work of the numerical factorization in 10^9 operations; 0 if it is unknown."""

    def in_single(self, matrix_nnz: int) -> "FactorSize":
        """The size in single precision of a factor in double precision, for a matrix of ``matrix_nnz`` entries."""
        return self._replace(n_bytes=self.n_bytes - SAVED_BYTES * (self.nnz + matrix_nnz))


@cache
def load_mkl() -> Any:
    """The MKL runtime as a ctypes library, or None if it cannot be loaded; loaded by the first call only.

    pypardiso would start a compiler and list all of sys.prefix to find the library, so it is given the wheel's place.
    The runtime loads its other libraries at its first call, and ends the process if that fails. So they are opened
    here first.
    """
    path = next(Path(sys.prefix, "lib").glob("libmkl_rt.so*"), None)
    if path is not None:
        os.environ.setdefault("PYPARDISO_MKL_RT", str(path))
    try:
        library = importlib.import_module("pypardiso").ps.libmkl
        _open_parts(Path(library._name))
    except (ImportError, OSError):
        return None
    return library


def _open_parts(runtime: Path) -> None:
    """Raise OSError if a library that MKL's runtime loads is missing, damaged, or does not fit the address space."""
    free = free_address_space()
    if free is not None and free < MKL_ADDRESS_BYTES:
        raise OSError(f"MKL needs {MKL_ADDRESS_BYTES} bytes of address space, {free} are free")
    if not runtime.is_absolute():
        return  # the system's loader finds it
    for part in MKL_PARTS:
        path = next(iter(sorted(runtime.parent.glob(f"{runtime.name.split('_rt.')[0]}_{part}.*"))), None)
        if path is None:
            raise OSError(f"MKL's libraries are not complete: {part} is not beside {runtime}")
        if part == "core":  # the others refer to it, and cannot be opened by themselves
            ctypes.CDLL(str(path), mode=os.RTLD_LAZY)


def is_available() -> bool:
    """Whether MKL PARDISO can be used in this process."""
    return load_mkl() is not None


def _iparm(matrix_type: int, n_threads: int, dtype: type[np.signedinteger[Any]], single: bool) -> Array:
    """PARDISO's parameters. The manual counts from 1, so its iparm(2) is entry 1 here."""
    iparm = np.zeros(64, dtype)
    general = matrix_type == GENERAL
    iparm[0] = 1  # no defaults
    iparm[1] = 2  # serial nested dissection: the parallel one differs from run to run
    iparm[9] = 13 if general else 8  # pivots below 10^-13 (10^-8) of the norm are perturbed
    iparm[10] = iparm[12] = int(general)  # scaling and matching
    iparm[17] = iparm[18] = -1  # report entries and work
    iparm[27] = int(single)
    iparm[33] = n_threads  # same bytes from run to run for this number of threads
    iparm[34] = 1  # indices are counted from 0
    return iparm


class Pardiso:
    """A sparse matrix in PARDISO. The constructor analyses the matrix.

    Index arrays and factor use 32-bit integers if the counts fit (0.6 GB less at 1 M points), else 64-bit integers.
    """

    def __init__(
        self,
        matrix: csr_array,
        matrix_type: int,
        n_threads: int,
        earlier_analysis: tuple[FactorSize, bool, npt.NDArray[np.integer[Any]]] | None = None,
        single: bool = False,
    ) -> None:
        """Analyse a square canonical CSR matrix, float64 (n, n); symmetric types need the upper triangle only.

        The arrays of the matrix are shared, not copied, if their types fit: they must not change until ``release``.
        ``earlier_analysis`` is the size, ``wide`` and ``permutation`` of an analysis of the same matrix; ``factor``
        then does the rest of the analysis. A factor in ``single`` precision takes half of the memory; ``solve`` then
        returns six digits at most.

        Raises: NotEnoughMemory, FactorizationError.
        """
        self._mkl = load_mkl()
        if not np.diff(matrix.indptr).all():  # PARDISO would terminate the process
            raise FactorizationError("the matrix is singular: a row has no entries")
        self._n, self._type, self._n_threads, self._single = matrix.shape[0], matrix_type, n_threads, single
        self._data = np.ascontiguousarray(matrix.data, dtype=np.float32 if single else np.float64)
        self._handle, self._matrix = np.zeros(64, np.int64), None if earlier_analysis is None else matrix
        self._int: type[np.signedinteger[Any]] = np.int32
        if earlier_analysis is not None:
            size, wide, self.permutation = earlier_analysis
            self.size = size.in_single(matrix.nnz) if single else size
            self._int = np.int64 if wide else np.int32
            return
        self.size = self._analyse(matrix, np.int64 if matrix.nnz >= 2**31 else np.int32)
        if not self.wide and self._overflows():
            self.release()
            self.size = self._analyse(matrix, np.int64)

    def factor(self) -> None:
        """Compute the factor.

        Raises:
            NotEnoughMemory: memory is exhausted.
            FactorizationError: a pivot is zero, or negative in a positive definite matrix.
        """
        if self._matrix is not None:
            self._analyse(self._matrix, self._int, self.permutation)
            self._matrix = None
        self._call(FACTOR)

    def solve(self, rhs: Float64, transposed: bool) -> Float64:
        """Solve for all columns of ``rhs`` (n, m) at once, with the matrix or its transpose.

        Eight columns take about twice the time of one, because the factor is read once for all of them. In single
        precision columns are solved at unit length, because residuals can be below the smallest float32.
        """
        lengths = np.maximum(np.linalg.norm(rhs, axis=0), np.finfo(np.float64).tiny) if self._single else None
        rhs = np.asfortranarray(rhs if lengths is None else rhs / lengths, dtype=self._data.dtype)
        solution = np.empty_like(rhs, order="F")
        self._iparm[11] = 2 if transposed else 0
        self._call(SOLVE, rhs, solution)
        return solution if lengths is None else np.asarray(solution * lengths)

    @property
    def wide(self) -> bool:
        """Whether index arrays and factor use 64-bit integers."""
        return self._int is np.int64

    def release(self) -> None:
        """Free all memory; a second call does nothing."""
        if self._handle.any():
            self._call(RELEASE)
            self._handle[:] = 0
            self._mkl.mkl_free_buffers()

    def _analyse(
        self,
        matrix: csr_array,
        dtype: type[np.signedinteger[Any]],
        permutation: npt.NDArray[np.integer[Any]] | None = None,
    ) -> FactorSize:
        self._int = dtype
        self._function = self._mkl["pardiso" if dtype is np.int32 else "pardiso_64"]
        self._function.restype = None
        self._handle = np.zeros(64, np.int64)
        self._iparm = _iparm(self._type, self._n_threads, dtype, self._single)
        self._iparm[4] = 2 if permutation is None else 1  # return the order of elimination, or use a given one
        self.permutation = np.zeros(self._n, dtype) if permutation is None else permutation.astype(dtype)
        self._indptr = matrix.indptr.astype(dtype, copy=False)
        self._indices = matrix.indices.astype(dtype, copy=False)
        self._call(ANALYSE)
        peak, permanent, numerical = (int(kilobytes) * 1024 for kilobytes in self._iparm[14:17])
        matrix_bytes = self._data.nbytes + self._indptr.nbytes + self._indices.nbytes
        n_bytes = max(peak, permanent + numerical) + matrix_bytes
        return FactorSize(int(self._iparm[17]), n_bytes, self._iparm[18] / 1000)

    def _overflows(self) -> bool:
        # a 32-bit count of entries is negative above 2^31 and positive again above 2^32
        return self.size.nnz < 0 or self.size.n_bytes >= 2**32 * self._data.itemsize

    def _call(self, phase: int, rhs: Array | None = None, solution: Array | None = None) -> None:
        n_rhs = 1 if rhs is None else rhs.shape[1]
        numbers = [np.array([v], self._int) for v in (1, 1, self._type, phase, self._n, n_rhs, 0, 0)]
        maxfct, mnum, mtype, phase_, n, nrhs, silent, error = numbers
        arguments = [self._handle, maxfct, mnum, mtype, phase_, n, self._data, self._indptr, self._indices]
        arguments += [self.permutation, nrhs, self._iparm, silent]
        addresses = [ctypes.c_void_p(a.ctypes.data) for a in arguments]
        vectors = [ctypes.c_void_p(None if a is None else a.ctypes.data) for a in (rhs, solution)]
        # for this thread only: it overrides the environment (workers have one thread), not other threads
        n_before = self._mkl.MKL_Set_Num_Threads_Local(self._n_threads)
        try:
            self._function(*addresses, *vectors, ctypes.c_void_p(error.ctypes.data))
        finally:
            self._mkl.MKL_Set_Num_Threads_Local(n_before)
        if error[0] != 0 and phase != RELEASE:
            self._fail(int(error[0]), phase)

    def _fail(self, code: int, phase: int) -> None:
        self.release()
        if code == -2:
            raise NotEnoughMemory(
                f"PARDISO ran out of memory in phase {phase} on a matrix of {self._n:,} rows",
                advice="give the process more memory, lower eigensolver.max_memory, or set eigensolver.method to "
                "multigrid",
            )
        meaning = ERRORS.get(code, "see the manual of PARDISO")
        raise FactorizationError(f"PARDISO ended phase {phase} on {self._n:,} rows with error {code}: {meaning}")
