"""Errors of files, object stores and format libraries as InputError, or as an error that a retry may cure."""

import errno
from collections.abc import Iterator
from contextlib import contextmanager

from ..core.errors import InputError, LleError
from ..storage.storage_errors import explain_remote

_NEVER_CURED = {errno.EINVAL, errno.EOVERFLOW, errno.EFBIG, errno.ENAMETOOLONG, errno.ELOOP}
"""Errors of a request for an impossible position, size or name."""
_NOT_THERE = (FileNotFoundError, PermissionError, IsADirectoryError, NotADirectoryError)


@contextmanager
def reading(where: str, expected: str = "data of this kind") -> Iterator[None]:
    """Explain every error as one of the file system, of an object store, or of a library that reads damaged data.

    Errors of this program and of missing packages are not changed.
    """
    try:
        yield
    except (LleError, ImportError, MemoryError):
        raise
    except Exception as error:
        if explanation := explain_remote(error):
            kind = InputError if explanation.is_final else LleError
            raise kind(f"{where}: {explanation.words}") from None
        number = error.errno if isinstance(error, OSError) else None
        if isinstance(error, _NOT_THERE) or number in _NEVER_CURED:
            raise InputError(
                f"{where}: cannot be read ({getattr(error, 'strerror', None) or error}); check the path, and that the "
                f"file exists, may be read and is not damaged"
            ) from error
        if number is None:  # Arrow, gzip and HDF5 report damaged data as OSError too, without an error number
            raise InputError(
                f"{where}: expected {expected}, found something else, or damaged or cut-off data "
                f"({type(error).__name__}: {error}); check the file, or write it again"
            ) from error
        raise LleError(
            f"{where}: reading failed ({error}); try again, and check the disk or the network if it happens again"
        ) from error
