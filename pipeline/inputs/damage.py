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
def reading(where: str) -> Iterator[None]:
    """Explain errors of the file system and of object stores; other errors are not changed."""
    try:
        yield
    except (LleError, MemoryError):
        raise
    except Exception as error:
        if explanation := explain_remote(error):
            kind = InputError if explanation.is_final else LleError
            raise kind(f"{where}: {explanation.words}") from None
        if not isinstance(error, OSError):
            raise
        if isinstance(error, _NOT_THERE) or error.errno in _NEVER_CURED:
            raise InputError(
                f"{where}: cannot be read ({error.strerror or error}); check the path, and that the file exists, may "
                f"be read and is not damaged"
            ) from error
        raise LleError(
            f"{where}: reading failed ({error}); try again, and check the disk or the network if it happens again"
        ) from error


@contextmanager
def decoding(where: str, expected: str = "data of this kind") -> Iterator[None]:
    """As `reading`; all other errors, which come from libraries that read damaged data, become InputError too.

    Errors of this program and of missing packages are not changed.
    """
    with reading(where):
        try:
            yield
        except (LleError, ImportError, MemoryError):
            raise
        except Exception as error:
            # Arrow and gzip report damaged data as OSError too, without an error number.
            if explain_remote(error) or (isinstance(error, OSError) and error.errno is not None):
                raise
            raise InputError(
                f"{where}: expected {expected}, found damaged or cut-off data ({type(error).__name__}: {error}); "
                f"check the file, or write it again"
            ) from error
