"""Errors and warnings of the program as a Python session expects them."""

import contextlib
import functools
import inspect
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import TypeVar, cast

from ..core.errors import InputError, Interrupted, LleError, Setting, StoreHeld
from .parameters import CONFIG_KEYS, FIT, as_argument

Function = TypeVar("Function", bound=Callable[..., object])

PACKAGES = (__name__.partition(".")[0], "sklearn", "joblib")


@contextlib.contextmanager
def python_errors(
    spelled: Callable[[Setting], str] = as_argument, files: Mapping[str, str] = MappingProxyType({})
) -> Iterator[None]:
    """Raise errors of the config and the input as ValueError, as scikit-learn does, with the same message.

    Messages about rows name parameters instead of config keys, with settings as `spelled`, and arguments instead of the
    `files` that hold them; the caller may add files later.
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
            message = str(error)
            for path, argument in files.items():
                message = message.replace(path, argument)
            if isinstance(error, InputError):
                for setting in error.settings:
                    message = message.replace(str(setting), spelled(setting))
                for name, (section, key) in CONFIG_KEYS.items():
                    message = message.replace(f"{section}.{key}", name)
            raise ValueError(message) from error
        raise


def short_traceback(function: Function) -> Function:
    """Decorator: errors whose message names the cure get a traceback of a few lines, without the internal calls."""

    @functools.wraps(function)
    def call(*arguments: object, **keywords: object) -> object:
        try:
            return function(*arguments, **keywords)
        except (ValueError, TypeError, LleError) as error:
            module = [frame.f_globals["__name__"] for frame, _ in traceback.walk_tb(error.__traceback__)][-1]
            if not str(module).startswith((PACKAGES[0], "sklearn.utils.validation")):  # an error of another library
                raise
            raise error.with_traceback(None) from None

    return cast(Function, call)


def warn(message: str, category: type[Warning] = UserWarning) -> None:
    """Issue a warning at the line that called this package; scikit-learn's calls of it, in pipelines, are skipped."""
    level, frame = 1, inspect.currentframe()
    while frame is not None and str(frame.f_globals.get("__name__")).partition(".")[0] in PACKAGES:
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)
