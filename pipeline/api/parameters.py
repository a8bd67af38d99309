"""The parameters of the estimator and of `embed`, and the config keys that they set."""

import functools
import inspect
import math
import os
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from numbers import Integral, Real
from typing import Any, TypeVar, cast

import numpy as np

from ..core.errors import Setting
from ..core.machine import available_cores
from ..core.methods import METHODS

Initializer = TypeVar("Initializer", bound=Callable[..., None])

CONFIG_KEYS = {
    "n_neighbors": ("neighbors", "n_neighbors"),
    "n_components": ("eigensolver", "n_components"),
    "reg": ("weights", "reg"),
    "tol": ("eigensolver", "tol"),
    "metric": ("neighbors", "metric"),
    "eigen_solver": ("eigensolver", "method"),
    "neighbors_algorithm": ("neighbors", "method"),
    "random_state": ("neighbors", "seed"),
    "n_jobs": ("execution", "cluster"),
    "store": ("output", "store"),
    "scale": ("embedding", "scale"),
}
"""The section and the key of each parameter; `method` is a key without a section."""

WITHOUT_EFFECT = ("max_iter", "hessian_tol", "modified_tol")
"""Parameters of scikit-learn's estimator without effect: the computations that they limit end at `tol` here."""

OPENED = {section for section, _ in CONFIG_KEYS.values()} | {"preprocess", "embedding", "output", "execution"}
"""Sections of a config in which values are set here, before the config is checked."""

PARAMETERS = (*CONFIG_KEYS, "method", *WITHOUT_EFFECT, "verbose")

SCIKIT_LEARN_NAMES = {
    "method": {"standard": "lle"},
    "eigen_solver": {"arpack": "shift_invert", "dense": "auto"},
    "neighbors_algorithm": {"kd_tree": "kdtree", "ball_tree": "kdtree"},
}
"""Values of scikit-learn's parameters that give the same result here under another name."""

FIT = "{fit}"
"""In the path of a store: a digest of the config and the data."""

SMALLEST = 1e-12
"""Replaces 0, which scikit-learn accepts as reg and as tol; smaller values are lost in rounding errors of sums."""

PARALLEL_ROWS = 20_000
"""Arrays with fewer rows are embedded in the calling process, which takes less time than starting workers."""


def as_keyword(setting: Setting) -> str:
    """A setting as an argument of `embed`, which takes the sections of a config as keywords.

    >>> as_keyword(Setting("weights", "reg")), as_keyword(Setting("neighbors", "reverse", "auto"))
    ('reg', "neighbors={'reverse': 'auto'}")
    """
    return _spelled(setting, "{section}={{{key!r}: {value!r}}}", "{section}[{key!r}]")


def as_argument(setting: Setting) -> str:
    """A setting as an argument of an estimator, whose other settings are in `config`.

    >>> as_argument(Setting("", "method", "pca")), as_argument(Setting("neighbors", "reverse", "auto"))
    ("method='pca'", "config={'neighbors': {'reverse': 'auto'}}")
    """
    return _spelled(setting, "config={{{section!r}: {{{key!r}: {value!r}}}}}", "config[{section!r}][{key!r}]")


def _spelled(setting: Setting, with_value: str, without_value: str) -> str:
    """A parameter as its name; a key that is no parameter in the form `with_value` or `without_value`."""
    names = {keys: name for name, keys in CONFIG_KEYS.items()} | {("", "method"): "method"}
    if name := names.get((setting.section, setting.key)):
        return name if setting.value is None else f"{name}={setting.value!r}"
    form = without_value if setting.value is None else with_value
    return form.format(section=setting.section, key=setting.key, value=setting.value)


def refuse_unknown(initialize: Initializer) -> Initializer:
    """The initializer of an estimator, with a TypeError that names the config section of an unknown keyword."""
    accepted = inspect.signature(initialize).parameters

    @functools.wraps(initialize)
    def checked(self: object, *arguments: object, **keywords: object) -> None:
        for name, value in keywords.items():
            if name not in accepted:
                raise TypeError(unknown_parameter(type(self).__name__, name, value))
        initialize(self, *arguments, **keywords)

    return cast(Initializer, checked)


def sections_of(
    parameters: Mapping[str, object], config: Mapping[str, Any] | None, n_rows: float = math.inf
) -> dict[str, Any]:
    """The sections of a config with the values of parameters; None leaves the config's own value.

    Below PARALLEL_ROWS rows n_jobs is checked, but sets nothing.

    Raises ValueError for a value of a wrong kind, and for a key that is given twice.
    """
    config = {} if config is None else config
    if not isinstance(config, Mapping):
        raise ValueError(f"config: expected sections of keys and values, found {config!r}")
    for name, section in config.items():
        if name in OPENED and not isinstance(section, Mapping):
            raise ValueError(f"config: {name}: expected a section of keys and values, found {section!r}")
    sections: dict[str, Any] = {
        name: dict(section) if isinstance(section, Mapping) else section for name, section in config.items()
    }
    if "method" in config:
        raise ValueError("config: method is a separate parameter; use method=...")
    values = {name: _value_of(name, value) for name, value in parameters.items() if value is not None}
    for name in WITHOUT_EFFECT:
        if not isinstance(bound := values.pop(name, 1), Real) or not float(bound) >= 0:
            raise ValueError(f"{name}: expected a number that is not negative, found {bound!r}")
    if "method" in values:
        sections["method"] = values.pop("method")
    for parameter, value in values.items():
        section, key = CONFIG_KEYS[parameter]
        if key in sections.setdefault(section, {}):
            raise ValueError(f"config: {section}.{key} is the parameter {parameter}; give it there only")
        sections[section][key] = value
    if "n_jobs" in values and n_rows < PARALLEL_ROWS:
        del sections["execution"]["cluster"]
    return sections


def n_rows_of(X: object) -> float:
    """The number of rows of an array or a table; infinity for an input section, and if it is unknown."""
    shape = (len(X),) if isinstance(X, list | tuple) else getattr(X, "shape", None) or (math.inf,)
    n_rows: float = shape[0] if isinstance(shape[0], int | float) else math.inf
    return n_rows


def least_rows(method: object, m: int) -> int:
    """Fewest rows for m coordinates: a point and the neighbours that the method needs; 0 for pca, which needs none."""
    return 0 if method == "pca" else 1 + max(m + 1, METHODS.get(str(method), METHODS["lle"]).min_neighbors(m))


def unknown_parameter(owner: str, name: str, value: object, own: Sequence[str] | None = None) -> str:
    """The error message for a keyword that is neither a parameter nor a section of the config.

    own: further parameters of a function that takes sections as keywords; None for an estimator, which has `config`.
    """
    from ..config.load import sections_with_key  # pydantic's models
    from ..config.models import Config

    message = f"{owner}: there is no parameter {name!r}"
    if sections := sections_with_key(name):
        keys = f"{{{name!r}: {value!r}}}"
        choices = " or ".join(f"{s}={keys}" if own is not None else f"config={{{s!r}: {keys}}}" for s in sections)
        return f"{message}; it is a key of a section of the config: {choices}"
    parameters = [*(own or ()), *PARAMETERS, *["config"] * (own is None)]
    if own is None and name in Config.model_fields and name != "input":
        return f"{message}; it is a section of the config: config={{{name!r}: {value!r}}}"
    similar = get_close_matches(name[:100], parameters, n=1)
    sections = [name for name in Config.model_fields if name not in (*parameters, "input")] if own is not None else []
    listed = f"{', '.join(parameters)}{'; sections of a config: ' * bool(sections)}{', '.join(sections)}"
    return f"{message}{f'; did you mean {similar[0]}?' if similar else ''} (parameters: {listed})"


def _value_of(name: str, value: object) -> object:
    """The value of a parameter as the config takes it."""
    if name == "random_state":
        return _seed(value)
    if name == "n_jobs":
        return _cluster(value)
    if isinstance(value, str):
        return SCIKIT_LEARN_NAMES.get(name, {}).get(value, value)
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if name in ("reg", "tol") and isinstance(value, Real) and value == 0:
        return SMALLEST
    return value.item() if isinstance(value, np.generic) else value


def _seed(random_state: object) -> int:
    """A number unchanged, else a number drawn from the generator."""
    if isinstance(random_state, Integral):
        return int(random_state)
    from sklearn.utils import check_random_state

    return int(check_random_state(random_state).randint(2**31))


def _cluster(n_jobs: object) -> dict[str, object]:
    if not isinstance(n_jobs, Integral) or n_jobs == 0:
        raise ValueError(f"n_jobs: expected None or a number of workers other than 0, found {n_jobs!r}")
    workers = int(n_jobs) if int(n_jobs) > 0 else max(1, available_cores() + 1 + int(n_jobs))
    if workers == 1:
        return {"kind": "serial"}
    return {"kind": "local", "workers": "auto" if n_jobs == -1 else workers}
