"""Errors of the program as a Python session expects them."""

import contextlib
import re
from collections.abc import Iterator

from ..core.errors import InputError, Interrupted, LleError, StoreHeld
from .array_input import FIT
from .parameters import with_parameter_names

ARRAY_FILE = re.compile(r"\S*/(?:input|(labels))-[0-9a-f]{32}\.npy")
"""A file that ``array_input`` wrote. Messages name the argument X or labels instead."""


@contextlib.contextmanager
def python_errors() -> Iterator[None]:
    """Raise errors of the config and the input as ValueError, as scikit-learn does, with the same message.

    Messages about rows name parameters instead of config keys.
    """
    try:
        yield
    except Interrupted as error:
        raise KeyboardInterrupt(str(error)) from None
    except LleError as error:
        if isinstance(error, StoreHeld):
            error.add_note(
                f"Parallel fits, as in GridSearchCV(n_jobs=2), need a store each: store='runs/grid-{FIT}.zarr', in "
                f"which {FIT} stands for a digest of parameters and data."
            )
        if error.exit_code == 2:
            message = ARRAY_FILE.sub(lambda file: file[1] or "X", str(error))
            if isinstance(error, InputError):
                message = with_parameter_names(message)
            raise ValueError(message) from error
        raise
