"""Run the pipeline from Python. `embed` takes an array and returns its embedding."""

import contextlib
import hashlib
import inspect
import json
import logging
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, get_overloads, overload
from urllib.parse import urlparse

from ..config.load import check_config
from ..config.models import Config
from ..core.arrays import Float64
from ..core.errors import ConfigError, InputError, Setting, StoreError
from ..core.machine import library_environment
from ..engine.plan import RunResult
from ..engine.progress import RunProgress, SilentProgress
from ..engine.step import Json
from ..jobs.layout import fits_memory
from ..jobs.run import run
from ..report.bounds import DROPPED_SHARE
from ..report.findings import Columns, find
from ..report.metrics import Metrics
from ..storage import array_specs
from ..storage.lock import RunLock
from ..storage.store import Store
from ..storage.store_in_memory import memory_root
from ..storage.versions import Versions
from .array_checks import refuse_invalid, refuse_other_types
from .array_input import as_array, digest_of, index_of, input_section, is_chunked
from .parameters import FIT, PARAMETERS, as_argument, as_keyword, n_rows_of, sections_of, unknown_parameter
from .python_errors import python_errors, short_traceback, warn
from .run_display import NotebookProgress, in_notebook

if TYPE_CHECKING:
    import pandas as pd


ARGUMENT_OF_FILE = {"path": "X", "labels": "labels", "id": "id"}
"""Keys of an input section of ``input_section`` that name a file, and what messages call it."""


class EmbeddingWarning(UserWarning):
    """Coordinates are missing or not accurate; the message names the parameter that cures it.

    Examples
    --------
    >>> import warnings
    >>> from lle import EmbeddingWarning
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("ignore", EmbeddingWarning)
    """


class Table(Protocol):
    """A pandas DataFrame, also for type checkers that have no types of pandas."""

    @property
    def iloc(self) -> Any: ...


Section = Mapping[str, object] | None


@overload
def embed(X: Table, **keywords: Any) -> "pd.DataFrame": ...
@overload
def embed(
    X: Any,
    *,
    labels: object = None,
    n_neighbors: int | None = None,
    n_components: int | None = None,
    reg: float | str | None = None,
    method: str | None = None,
    metric: str | None = None,
    scale: str | None = None,
    tol: float | None = None,
    eigen_solver: str | None = None,
    neighbors_algorithm: str | None = None,
    random_state: object = None,
    n_jobs: int | None = None,
    max_iter: int | None = None,
    hessian_tol: float | None = None,
    modified_tol: float | None = None,
    store: str | os.PathLike[str] | None = None,
    verbose: bool = False,
    preprocess: Section = None,
    neighbors: Section = None,
    weights: Section = None,
    graph: Section = None,
    eigensolver: Section = None,
    embedding: Section = None,
    quality: Section = None,
    output: Section = None,
    execution: Section = None,
) -> Float64: ...
@short_traceback
def embed(X: Any, *, labels: object = None, verbose: bool = False, **keywords: object) -> Any:
    """Embed X by the stages of `lle run` and return its coordinates.

    Parameters
    ----------
    X : array of shape (n, d), str, path or dict
        A NumPy array (or what converts to one, such as a table of pandas or Arrow; masked entries count as NaN), a
        Dask array or a Zarr array of numbers; the path or URL of a file, with the roles of columns, ``preprocess`` and
        ``embedding`` that ``lle init`` writes; or the input section of a config, such as ``{"kind": "parquet", "path":
        "rows/*.parquet"}``. Dask and Zarr arrays are read by blocks.
    labels : array of shape (n,) or (n, c), default None
        Numbers or text that colour the report, under the name of a Series. The embedding does not depend on them.
    n_neighbors, n_components, reg, method, metric, scale, tol : int, float or str
        As for `LocallyLinearEmbedding`, but n_neighbors is never reduced. Defaults are those of a config, except: there
        is no report, tasks run in this process, and the store is temporary (``store="runs/x.zarr"`` keeps it, and a
        second call resumes it).
    eigen_solver, neighbors_algorithm, random_state, n_jobs, max_iter, hessian_tol, modified_tol : object
        As for `LocallyLinearEmbedding`.
    store, verbose : str, bool
        As for `LocallyLinearEmbedding`.
    preprocess, neighbors, weights, graph, eigensolver, embedding, quality, output, execution : dict, default None
        Sections of a config, such as ``preprocess={"scale": "standard"}``.

    Returns
    -------
    ndarray of shape (n, n_components), float64, or pandas.DataFrame
        Coordinates in the row order of X; NaN for rows that were not embedded. For a DataFrame: a DataFrame with the
        index of X and the columns y1, y2, ...

    Raises
    ------
    ValueError
        A parameter, the config or the input has an error; the message names the key and its section.
    LleError
        Any other failure, for instance ``BoundsNotMet`` if the measured recall is below ``neighbors.min_recall``.

    Warns
    -----
    EmbeddingWarning
        Coordinates are missing or not accurate. The other warnings of a report, which judge the quality of the
        embedding, are logged by the logger "lle".

    See Also
    --------
    LocallyLinearEmbedding : The same as a scikit-learn transformer.
    open_run : Read the store of a run.

    Examples
    --------
    >>> from sklearn.datasets import make_swiss_roll
    >>> from lle import embed
    >>> X, length = make_swiss_roll(800, random_state=0)
    >>> embed(X, n_neighbors=10, n_components=3, method="ltsa").shape
    (800, 3)
    >>> embed(X, n_neighbors=10, preprocess={"scale": "standard"}).shape
    (800, 2)
    """
    given = {name: value for name, value in keywords.items() if value is not None}
    proposed: dict[str, Any] = {}
    if isinstance(X, str | os.PathLike):
        from ..jobs.init import proposed_config  # reads files of all kinds

        try:
            with python_errors(as_keyword):
                proposed = proposed_config(os.fspath(X))
        except ValueError as error:
            raise ValueError(str(error).removeprefix("input.path: ")) from None
    data = proposed.get("input", X)
    sections = sections_of_keywords(given, data)
    for name in proposed.keys() & {"preprocess", "embedding"}:
        sections[name] = proposed[name] | sections.get(name, {})
    with finished_run(data, sections, verbose, labels, column_names(X), index_of(X), as_keyword) as (run, result):
        coordinates, config = run.read_all(array_specs.EMBEDDING.name), run.attributes()["config"]
    warn_of_embedding(result, config, as_keyword)
    if not hasattr(X, "iloc"):
        return coordinates
    import pandas as pd  # the caller has imported it

    return pd.DataFrame(coordinates, X.index, [f"y{number + 1}" for number in range(coordinates.shape[1])])


vars(embed)["__signature__"] = inspect.signature(get_overloads(embed)[-1])  # for help and completion


def sections_of_keywords(
    keywords: dict[str, object], X: object, owner: str = "embed", own: Sequence[str] = ("labels",)
) -> dict[str, Any]:
    """The sections of a config for parameters of the estimator and whole sections. Raises ValueError for others.

    X is the array to embed, or its input section: few rows need no workers. owner: the function, for messages, and its
    own parameters.
    """
    values = {name: value for name, value in keywords.items() if name in PARAMETERS}
    config = {name: value for name, value in keywords.items() if name not in PARAMETERS}
    for name, value in config.items():
        if name not in Config.model_fields:
            raise ValueError(unknown_parameter(owner, name, value, own))
    return sections_of(values, config, n_rows_of(X))


def warn_of_embedding(result: RunResult, config: dict[str, object], spelled: Callable[[Setting], str]) -> None:
    """Issue an EmbeddingWarning for each defect of a run, and one for rows with NaN, at the line that called the API.

    Warnings about the quality are only logged: a program that turns warnings into errors must not fail because of its
    data. `config` is that of the store, `spelled` formats a setting as an argument.
    """
    metrics = Metrics.read(result.metrics)
    findings = [finding for finding in find(metrics, config) if finding.level != "note"]
    for finding in findings:
        if not finding.is_defect:
            logging.getLogger("lle").warning("%s", finding.text(spelled))
    sentences = [finding.text(spelled) for finding in findings if finding.is_defect]
    n_invalid = (metrics.dropped or {}).get("invalid", 0)
    if 0 < n_invalid < DROPPED_SHARE * metrics.n_input:  # too few for a warning of the report
        sentences.append(f"{n_invalid} of {metrics.n_input} rows hold NaN or infinity; their coordinates are NaN")
    for sentence in sentences:
        warn(sentence, EmbeddingWarning)


@contextlib.contextmanager
def finished_run(
    X: object,
    sections: dict[str, Any],
    verbose: bool = False,
    labels: object = None,
    names: Sequence[str] | None = None,
    ids: object = None,
    spelled: Callable[[Setting], str] = as_argument,
) -> Iterator[tuple[Store, RunResult]]:
    """Run the stages on X. Without output.store, the store is deleted at the end of the `with` block.

    The store of a small run in this process is in memory, that of any other run without output.store in a folder.

    A run with output.store resumes: for the same X, results that do not depend on the changed sections are kept.
    `names` of the columns of X are stored, with the name of the labels: messages and pictures have them, and `lle
    transform` matches tables by name. A kept store also has `ids`, an index of pandas. `spelled` is for messages, as in
    `python_errors`.

    Raises ValueError with the program's message for errors of the config and the input, KeyboardInterrupt for Ctrl-C,
    LleError for other failures (StoreError, BoundsNotMet, ...).
    """
    for name, value in library_environment().items():
        os.environ.setdefault(name, value)
    files = dict[str, str]()
    with python_errors(spelled, files), tempfile.TemporaryDirectory(prefix="lle-") as folder, memory_root() as url:
        is_kept = "store" in sections.get("output", {})
        label, id_name = _name_of(labels), _name_of(ids)
        attributes: Json = {"names": {"label": label, "id": id_name}}
        if names is not None:
            attributes["columns"] = Columns(
                features=list(names), label=label, id=id_name, left_out={}, suspect={}, possible_ids=[]
            )
        progress: RunProgress = SilentProgress()
        if verbose:
            progress = NotebookProgress() if in_notebook() else RunProgress(sys.stderr)
        while True:
            config = _complete_config(X, sections, Path(folder), labels, names, ids if is_kept else None)
            if not is_kept and fits_memory(config):
                config = config.model_copy(update={"output": config.output.model_copy(update={"store": url})})
            if type(X) is not dict:
                section = config.input.model_dump()
                files |= {section[key]: name for key, name in ARGUMENT_OF_FILE.items() if section.get(key)}
            try:
                result = run(config, fresh=False, progress=progress, attributes=attributes)
                break
            except InputError:  # another run that ended while this one waited for the lock may have removed the files
                if all(map(os.path.exists, files)):
                    raise
        _remove_old_inputs(config)
        yield Store(result.store), result


def _name_of(values: object) -> str | None:
    """The name of a Series or an index of pandas; None if it has none that is text. Those of Dask are keys."""
    name = None if is_chunked(values) else getattr(values, "name", None)
    return name if isinstance(name, str) else None


def column_names(X: object) -> list[str] | None:
    """The column names of a table such as a pandas DataFrame; None if it has none, or if some are not text."""
    columns = getattr(X, "columns", None)
    names = [] if columns is None else list(columns)
    return names if names and all(isinstance(name, str) for name in names) else None


def _complete_config(
    X: Any, sections: dict[str, Any], folder: Path, labels: object, names: Sequence[str] | None, ids: object
) -> Config:
    """The config of the sections with X as their input, checked before anything is written."""
    if "input" in sections:
        raise ConfigError("config: the section input is not allowed beside X; remove it, or pass it as X")
    output = {"store": str(folder / "run.zarr"), "report": False, "min_rows": 0.0, **sections.get("output", {})}
    data = {**sections, "output": output, "execution": {"cluster": {"kind": "serial"}, **sections.get("execution", {})}}
    if FIT in str(output["store"]):
        keys = json.dumps({**data, "input": digest_of(X)}, sort_keys=True, default=str)
        digest = hashlib.sha256(keys.encode()).hexdigest()[:16]
        output["store"] = str(output["store"]).replace(FIT, digest)
    config = check_config({**data, "input": {"kind": "npy", "path": str(output["store"]) or "X"}}, "config")
    store = Store(config.output.store)
    # Raises an error if the store belongs to another program, before the input is written there.
    if config.output.keep is None:
        store.is_run()
    else:
        Versions(store.url).check_place()
    if config.preprocess.invalid == "error" and type(X) is not dict and not is_chunked(X):
        refuse_other_types(X)
        refuse_invalid(as_array(X), names)
    folder_of_input = folder if urlparse(store.url).scheme else _place(store)
    input_settings = input_section(X, folder_of_input, labels, ids)
    config = check_config({**data, "input": input_settings}, "config")
    written_here = input_settings.get("path", "").startswith(str(folder_of_input))
    if written_here and config.execution.cluster.kind not in ("serial", "local"):
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
        in_use = {str(section.get(key)) for section in inputs for key in ARGUMENT_OF_FILE}
        for path in _place(root.store).glob("*-*.npy"):
            if str(path) not in in_use:
                path.unlink(missing_ok=True)


def _place(store: Store) -> Path:
    """The folder of the input array for a local store."""
    return Path(store.url) / "_run"
