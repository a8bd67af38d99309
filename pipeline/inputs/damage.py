"""Convert all errors that readers raise for damaged data to InputError, in one place."""

import errno
from collections.abc import Iterator
from contextlib import contextmanager

from ..core.errors import InputError, LleError
from ..storage.storage_errors import explain_remote

_NEVER_CURED = {errno.EINVAL, errno.EOVERFLOW, errno.EFBIG, errno.ENAMETOOLONG, errno.ELOOP}


def retry_may_cure(error: OSError) -> bool:
    """Whether reading again could succeed. Not after a request for an impossible position, size or name."""
    return error.errno not in _NEVER_CURED


@contextmanager
def damage_as_input_error(where: str) -> Iterator[None]:
    """Turn the errors of file-format libraries into InputError.

    Errors of this program, of the file system, of object stores and of missing packages are not changed.
    """
    try:
        yield
    except (LleError, OSError, ImportError, MemoryError):
        raise
    except Exception as error:
        if explain_remote(error) is not None:
            raise
        raise InputError(
            f"{where}: expected data of this kind, found damaged or cut-off data ({type(error).__name__}: {error}); "
            f"check the file, or write it again"
        ) from error
