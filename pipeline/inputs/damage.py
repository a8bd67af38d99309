"""The one place where whatever a reader raises for damaged data becomes an InputError."""

from collections.abc import Iterator
from contextlib import contextmanager

from ..core.errors import InputError, LleError
from ..storage.storage_errors import explain_remote


@contextmanager
def damage_as_input_error(where: str) -> Iterator[None]:
    """Turn the errors of file-format libraries into InputError.

    Left as they are: named errors, errors of the file system and of object stores, and those of a missing package.
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
            f"check the file, or write it anew"
        ) from error
