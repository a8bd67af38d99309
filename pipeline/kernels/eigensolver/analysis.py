"""The symbolic analysis of a factorization: its size and its order of elimination, so that it need not be repeated.

Nested dissection computes the order, which takes most of the time of an analysis. With a given order PARDISO repeats
only the cheap part of the analysis, and gives the same bytes as with an order that it has computed.
"""

import hashlib
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from . import pardiso
from .pardiso import FactorSize

ANALYSIS_VERSION = 4
"""Part of every key; version 1 counted the order of elimination from 1, version 3 sized an LU with two levels."""
KINDS = {pardiso.GENERAL: "lu", pardiso.POSITIVE_DEFINITE: "cholesky"}


class Analysis(NamedTuple):
    """The result of an analysis."""

    size: FactorSize
    wide: bool
    """Whether PARDISO needs 64-bit integers."""
    permutation: npt.NDArray[np.integer[Any]]
    """(n,) order of elimination, counted from 0."""


class Analyses(Protocol):
    """Analyses that were done before, by key."""

    def load(self, key: str) -> Analysis | None:
        """The analysis with this key; None if there is none."""

    def keep(self, key: str, analysis: Analysis) -> None:
        """Keep an analysis for later."""


class NoAnalyses:
    """No analysis is stored."""

    def load(self, key: str) -> Analysis | None:
        return None

    def keep(self, key: str, analysis: Analysis) -> None:
        """Does nothing."""


NO_ANALYSES = NoAnalyses()


def analysis_key(matrix: csr_array, matrix_type: int, pin: int, n_threads: int, single: bool = False) -> str:
    """Kind and fingerprint of a matrix whose row ``pin`` is replaced before the analysis, and its precision.

    The analysis of a symmetric matrix depends only on its pattern. That of a general one also reads its values, for
    scaling and matching.
    """
    digest = hashlib.blake2b(digest_size=16)
    general = matrix_type == pardiso.GENERAL
    digest.update(
        repr((ANALYSIS_VERSION, matrix.shape, matrix.indices.dtype.str, n_threads, pin if general else None)).encode()
    )
    for part in (matrix.indptr, matrix.indices, *([matrix.data] if general else [])):
        digest.update(np.ascontiguousarray(part).data)
    return f"{KINDS[matrix_type]}{'-single' if single else ''}-{digest.hexdigest()}"
