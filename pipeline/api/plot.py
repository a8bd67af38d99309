"""Draw an embedding on matplotlib axes, with the colours and the aggregation of the report."""

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from ..core.arrays import Float64, Int32
from ..core.errors import ConfigError, InputError
from ..inputs.labels import MAX_TEXT_CLASSES, natural_order
from ..jobs.new_rows import TABLES
from ..report.column import MAX_CLASSES, Column
from ..stages.report_columns import label_column
from ..storage import array_specs
from ..storage.store import Store
from .array_input import as_matrix, as_vector, is_chunked
from .open_run import OpenedRun, open_run
from .python_errors import python_errors, short_traceback

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

SECONDS_PER_YEAR = 365.2425 * 86400


@short_traceback
def plot(run_or_Y: object, color: object = None, ax: "Axes | None" = None) -> "Axes":
    """Draw the first two coordinates of an embedding; a single coordinate against its colour.

    More than 100,000 points are aggregated on the pixels of the axes. Components stand side by side, as in the report.

    Parameters
    ----------
    run_or_Y : OpenedRun, str, path, LocallyLinearEmbedding or array of shape (n, m)
        A run, the path or URL of its store, a fitted estimator, or coordinates.
    color : array of shape (n,) or str, default None
        Numbers, dates, text or categories, one for each row; or the name of a column of the run, such as "component",
        "reconstruction_error" or "y3", or of its input table. None: the label of the run, if it has one.
    ax : matplotlib Axes, default None
        Axes to draw on; None: those of a new figure.

    Returns
    -------
    matplotlib Axes
        The axes with the points, the legend or the colour bar.

    Raises
    ------
    ValueError
        The shape of the coordinates or of the colours is wrong, or the run has no column of that name.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from lle import embed, plot
    >>> digits = load_digits()
    >>> ax = plot(embed(digits.data, method="pca"), color=digits.target)
    >>> ax.get_xlabel(), len(ax.get_legend().get_texts())
    ('coordinate 1', 10)
    """
    from ..report.embedding_figure import content_of, draw_content, panel_of, shown_paint
    from ..report.point_colors import add_key  # matplotlib

    if ax is not None and not hasattr(ax, "get_figure"):
        raise ValueError(f"ax: expected Axes of matplotlib, found {type(ax).__name__}")
    run = open_run(run_or_Y) if isinstance(run_or_Y, str | os.PathLike) else run_or_Y
    embedding, component = _coordinates(run)
    source = _color_column(run, color, len(embedding))
    content = content_of(embedding, component, source)
    if not content.groups:
        raise ValueError(f"expected coordinates to draw, found none that are finite in {len(embedding)} rows")
    if ax is None:
        import matplotlib.pyplot as plt

        _, ax = plt.subplots(layout="constrained")
    figure = ax.get_figure(root=True)
    assert figure is not None
    content = content._replace(pairs=content.pairs[:1])
    panel, engine = panel_of(ax, content, content.pairs[0]), figure.get_layout_engine()
    paint = shown_paint(content, [panel])
    add_key(ax, [ax], paint, loc="center left", bbox_to_anchor=(1.0, 0.5))
    draw_content(figure, [panel], content, paint)
    figure.set_layout_engine(engine)  # pixels are counted in a fixed layout; the figure stays the caller's
    return ax


def _coordinates(run: Any) -> tuple[Float64, Int32]:
    """The coordinates (n, m) and the component of each row."""
    if isinstance(run, OpenedRun):
        return run["embedding"].compute(), run["component"].compute()
    if hasattr(run, "embedding_"):
        return run.embedding_, getattr(run, "component_", np.zeros(len(run.embedding_), np.int32))
    if hasattr(run, "fit"):
        check_is_fitted(run)
    with python_errors():
        embedding = np.asarray(as_matrix(run, "coordinates"), np.float64)
    return embedding, np.zeros(len(embedding), np.int32)


def _color_column(run: Any, color: object, n_rows: int) -> Column | None:
    if color is None or isinstance(color, str):
        if getattr(run, "store_", None):
            run = open_run(run.store_)
        columns: Mapping[str, pd.Series] = run.columns() if isinstance(run, OpenedRun) else {}
        if color is None:
            label = label_column(Store(run.store).attributes()) if isinstance(run, OpenedRun) else ""
            color = columns[label].rename(label) if label in columns else None
        elif color in columns:
            color = columns[color].rename(color)
        elif isinstance(run, OpenedRun):
            color = _input_column(run, color, n_rows, list(columns))
        else:
            raise ValueError(f"color: no column {color!r}; only a run has columns; pass an array")
    return None if color is None else colors_of(color, n_rows)


def _input_column(run: OpenedRun, name: str, n_rows: int, columns: list[str]) -> object:
    """A column of the run's input, or a feature in its store if the input cannot be read. Raises ValueError."""
    import pandas as pd

    from ..jobs.export import columns_of_input, input_of_run

    store = Store(run.store)
    names = (store.attributes().get("columns") or {}).get("features", ())
    features = list(names) if store.has_array(array_specs.RAW.name) else []
    where = reason = ""
    if run.config["input"]["kind"] in TABLES:
        try:
            [read] = columns_of_input(input_of_run(store.attributes(), n_rows), (name,), "color.parquet")
            [column] = read(0, n_rows).values()
            return column.to_pandas(date_as_object=False).rename(name)
        except (ConfigError, InputError) as error:
            where = " in the store, and the input cannot be used" * isinstance(error, InputError)
            reason = f"; {str(error.args[0]).removeprefix('--with: ')}"
    if name in features:
        return pd.Series(store.array(array_specs.RAW.name)[:, features.index(name)], name=name)
    known = ", ".join([*columns, *features])
    raise ValueError(f"color: no column {name!r}{where}; there are {known}; or pass an array{reason}")


def colors_of(values: object, n_rows: int) -> Column:
    """Numbers and dates as a scale; text, truth values, categories and up to 20 different integers as classes.

    Raises ValueError if there is not one value for each row.
    """
    import pandas as pd

    label = str((not is_chunked(values) and getattr(values, "name", None)) or "color")
    if str(getattr(values, "dtype", "")).startswith("datetime64"):
        seconds = pd.Series(values).to_numpy("datetime64[s]")  # in UTC
        years = 1970 + seconds.astype(np.float64) / SECONDS_PER_YEAR
        values, label = np.where(np.isnat(seconds), np.nan, years), f"{label} (year)"
    array = as_vector(values)
    if array.shape != (n_rows,):
        raise ValueError(f"color: expected one value for each of the {n_rows} rows, found shape {array.shape}")
    is_known = ~pd.isna(array)
    known = array[is_known]
    if known.dtype == object and len(known) and all(type(value) in (int, float) for value in known.tolist()):
        known = np.array(known.tolist())  # numbers with missing ones, such as pandas' nullable types
    is_number = known.dtype.kind in "iuf"
    if known.dtype.kind == "f" or (is_number and len(np.unique(known)) > MAX_CLASSES):
        scale = np.full(n_rows, np.nan)
        scale[is_known] = known
        return Column(label, label, scale)
    texts = (known.astype(str) if known.dtype.kind == "S" else known).tolist()
    texts = [str(value) for value in texts]
    dtype: Any = getattr(values, "dtype", None)
    ranks = {str(name): rank for rank, name in enumerate(dtype.categories)} if getattr(dtype, "ordered", False) else {}
    names = sorted(set(texts), key=lambda name: (ranks.get(name, 0), natural_order(name)))
    if len(names) > MAX_TEXT_CLASSES:
        raise ValueError(f"color: expected numbers or at most {MAX_TEXT_CLASSES} different texts, found {len(names)}")
    codes = np.full(n_rows, -1)
    codes[is_known] = pd.Categorical(texts, names).codes
    return Column(label, label, codes, names)
