"""Run the pipeline from Python. `embed` takes an array and returns its embedding."""

import contextlib
import io
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

import numpy as np
import numpy.typing as npt

from ..config.models import Config, check_config
from ..core.errors import ConfigError, Interrupted, LleError, StoreError
from ..core.machine import reproducible_environment
from ..engine.plan import RunResult
from ..engine.progress import RunProgress
from ..jobs.run import run
from ..storage import array_specs
from ..storage.lock import RunLock
from ..storage.store import Store
from ..storage.versions import Versions
from .array_input import input_section, remove_unnamed

SERIAL = {"kind": "serial"}
OF_THIS_MACHINE = ("serial", "local")


def embed(X: Any, **config: Any) -> npt.NDArray[np.float64]:
    """Embed X by the stages of `lle run` and return its coordinates.

    Parameters
    ----------
    X : array of shape (n, d) or dict
        A NumPy array (or what converts to one), a Dask array or a Zarr array of numbers; or the input section of a
        config, such as ``{"kind": "parquet", "path": "rows/*.parquet"}``. Dask and Zarr arrays are read by blocks.
    **config : str or dict
        The other sections of a config, such as ``method="ltsa"`` or ``neighbors={"n_neighbors": 10}``. Defaults are
        those of a config, except: there is no report, tasks run in this process, and the store is temporary
        (``output={"store": "runs/x.zarr"}`` keeps it, and a second call resumes it).

    Returns
    -------
    ndarray of shape (n, n_components), float64
        Coordinates in the row order of X; NaN for rows that were not embedded.

    Raises
    ------
    ValueError
        The config or the input has an error; the message names the key.
    LleError
        Any other failure, for instance ``BoundsNotMet`` if the measured recall is below ``neighbors.min_recall``.

    See Also
    --------
    LocallyLinearEmbedding : The same as a scikit-learn transformer.
    open_run : Read the store of a run.

    Examples
    --------
    >>> from sklearn.datasets import make_swiss_roll
    >>> from lle import embed
    >>> X, length = make_swiss_roll(800, random_state=0)
    >>> embed(X, method="ltsa", neighbors={"n_neighbors": 10}).shape
    (800, 2)
    """
    with finished_run(X, config) as (store, _):
        return store.read_all(array_specs.EMBEDDING.name)


@contextlib.contextmanager
def finished_run(X: Any, sections: dict[str, Any], verbose: bool = False) -> Iterator[tuple[Store, RunResult]]:
    """Run the stages on X. Without output.store, the store is deleted at the end of the `with` block.

    A run with output.store resumes: for the same X, results that do not depend on the changed sections are kept.

    Raises ValueError with the program's message for errors of the config and the input, KeyboardInterrupt for Ctrl-C,
    LleError for other failures (StoreError, BoundsNotMet, ...).
    """
    for name, value in reproducible_environment().items():
        os.environ.setdefault(name, value)
    with python_errors(), tempfile.TemporaryDirectory(prefix="lle-") as folder:
        config = _complete_config(X, sections, Path(folder))
        progress = RunProgress(sys.stderr if verbose else io.StringIO())
        result = run(config, fresh=False, progress=progress)
        _remove_old_inputs(config)
        yield Store(result.store), result


def _complete_config(X: Any, sections: dict[str, Any], folder: Path) -> Config:
    """The config of the sections with X as their input, checked before anything is written."""
    if "input" in sections:
        raise ConfigError("config: input is what X is; remove the section, or pass it as X")
    own_defaults: dict[str, dict[str, Any]] = {
        "output": {"store": str(folder / "run.zarr"), "report": False}, "execution": {"cluster": SERIAL}
    }  # fmt: skip
    data = {**sections}
    for name, defaults in own_defaults.items():
        section = sections.get(name, {})
        if not isinstance(section, dict):
            raise ConfigError(f"config: {name}: expected a section of keys and values, found {section!r}")
        data[name] = {**defaults, **section}
    config = check_config({**data, "input": {"kind": "npy", "path": data["output"]["store"]}}, "config")
    store = Store(config.output.store)
    # Raises an error if the store belongs to another program, before the input is written there.
    if config.output.keep is None:
        store.is_run()
    else:
        Versions(store.url).check_place()
    folder_of_input = folder if urlparse(store.url).scheme else _place(store)
    input_settings = input_section(X, folder_of_input)
    config = check_config({**data, "input": input_settings}, "config")
    written_here = input_settings.get("path", "").startswith(str(folder_of_input))
    if written_here and config.execution.cluster.kind not in OF_THIS_MACHINE:
        raise ConfigError(
            f"execution.cluster.kind is {config.execution.cluster.kind}, whose workers cannot read an array of this "
            f"process; write X to a place that they can read, and pass its input section instead of X, such as "
            f"{{'kind': 'zarr', 'url': 's3://bucket/points.zarr'}}, or set the kind to serial or local"
        )
    return config


def _remove_old_inputs(config: Config) -> None:
    """Remove the array files of earlier runs beside the store, except the inputs of versions that still exist.

    Needs the lock, because a running job may read one of the files; if it is held, a later run removes them.
    """
    root = Versions(config.output.store)
    if urlparse(root.url).scheme:
        return
    with contextlib.suppress(StoreError), RunLock(root.store):
        stores = [root.store] if config.output.keep is None else [root.open(version) for version in root.ids()]
        inputs = [store.attributes()["config"]["input"] for store in stores if store.objects.exists("zarr.json")]
        remove_unnamed(_place(root.store), {str(section.get("path")) for section in inputs})


def _place(store: Store) -> Path:
    """The folder of the input array for a local store."""
    return Path(store.url) / "_run"


@contextlib.contextmanager
def python_errors() -> Iterator[None]:
    """Raise errors of the config and the input as ValueError, as scikit-learn does, with the same message."""
    try:
        yield
    except Interrupted as error:
        raise KeyboardInterrupt(str(error)) from None
    except LleError as error:
        if error.exit_code == 2:
            raise ValueError(str(error)) from error
        raise
