"""The bottom eigenpairs of M = A' A, the eigenvector of the constant left out: the routes to them, and the choice.

| method | how | where it belongs |
|---|---|---|
| dense | singular values of the dense A | some hundred points |
| factored | Krylov space of M^+ through the LU of A | square A (LLE) whose factor fits the memory |
| shift_invert | the same through the Cholesky factor of M | every method of the family, if that fits |
| chebyshev | polynomial filters, products with A only | whatever fits no factor |

Every route ends with singular values of A on a small subspace, so the eigenvalues are ||A v||^2, and the factor routes
correct their vectors by v <- v - M^+ (A' (A v) - lambda v). That makes the Cholesky route as exact as the LU one although
M in float64 has lost digits: it is then only the preconditioner.

A vector stored in float64 has ||M v - lambda v|| / lambda near 0.1 to 0.6 eps lambda_max / lambda, however good it is:
3 % at a million points on a surface, where lambda is 1e-14. A pair therefore counts as converged when that residual is
at most max(tol, 4 eps lambda_max / lambda) and the error of the vector itself, which rounding enters by its square root
only (||M^+ (M v - lambda v)|| or what a polynomial filter turns v by), at most max(tol, 100 eps sqrt(lambda_max / lambda)).
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.linalg
import scipy.sparse as sp
from threadpoolctl import threadpool_limits

from pipeline.errors import ConfigError, InputError, NotEnoughMemory
from pipeline.kernels import routes
from pipeline.kernels.graph import closed_classes
from pipeline.kernels.pardiso import FactorizationError
from pipeline.kernels.ritz import fix_signs, residual_norms
from pipeline.kernels.routes import Outcome, Problem

F64 = npt.NDArray[np.float64]
Csr = sp.csr_array[Any]
