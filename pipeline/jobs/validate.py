"""Checks of a config against the header of its input, without computing (`lle validate`)."""

from pathlib import Path
from typing import NotRequired, TypedDict

from ..config.load import load_config, read_settings
from ..config.models import Config
from ..core.errors import ConfigError, NotEnoughMemory
from ..report import prometheus
from ..report.findings import Columns, of_columns
from ..stages import ingest
from .layout import check_layout, described_columns, image_shape_of, layout_of
from .sweep_plan import load_sweep


class Validated(TypedDict):
    """The sizes of a valid input, its columns, and warnings about them; `experiments` only for a sweep."""

    valid: bool
    n_input: int
    fit_sample: int | None
    n_features: int
    dtype: str
    block_points: int
    columns: Columns | None
    image_shape: tuple[int, ...] | None
    warnings: list[str]
    experiments: NotRequired[int]


def validate_file(path: Path, overrides: tuple[str, ...], store: str | None) -> Validated:
    """As `validate`, for a file; with a section `sweep` all experiments are checked and the first is described."""
    if read_settings(path, overrides)[1] is None:
        return validate(load_config(path, overrides, store))
    _, experiments = load_sweep([path], overrides, store)
    if wrong := [experiment.error for experiment in experiments if experiment.config is None]:
        raise ConfigError("\n".join(wrong))
    checked = [validate(experiment.config) for experiment in experiments if experiment.config is not None]
    return {**checked[0], "experiments": len(checked)}


def validate(config: Config, only_warn: bool = False) -> Validated:
    """Check the config against the input's header; returns the sizes of the input and its columns.

    Raises ConfigError, InputError or NotEnoughMemory. The last is a warning if ``only_warn`` is true.
    """
    source = ingest.open_input(config)
    layout = layout_of(config, source)
    if config.input.fit_sample is not None:
        from .placing import open_all_rows  # loads the stages and Dask

        source = open_all_rows(config)
    warnings = list[str]()
    try:
        check_layout(config, layout)
    except NotEnoughMemory as error:
        if not only_warn:
            raise
        warnings.append(f"A run that starts here now would end with an error: {error}.")
    if config.output.prometheus is not None:
        prometheus.check_place(config.output.prometheus)
    columns, image_shape = described_columns(config, source), image_shape_of(config, source)
    return {
        "valid": True,
        "n_input": source.n_rows,
        "fit_sample": config.input.fit_sample,
        "n_features": layout.n_features_input,
        "dtype": layout.dtype,
        "block_points": layout.block_points,
        "columns": columns,
        "image_shape": image_shape,
        "warnings": [*warnings, *(finding.text() for finding in of_columns(columns))],
    }
