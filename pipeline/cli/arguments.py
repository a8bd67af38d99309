"""Arguments and options that several commands share, or whose definition takes several lines."""

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from ..core.errors import ConfigError, LleError, listed

if TYPE_CHECKING:
    from ..config.models import Config

OF_PCA = ("input", "preprocess", "eigensolver", "embedding")
OF_RESULT = (*OF_PCA, "neighbors", "graph", "weights")
"""The sections of a config that can change the coordinates."""
NAMED_KEYS = 3

ConfigPath = Annotated[Path, typer.Argument(metavar="CONFIG", help="the YAML file of the run")]
StoreUrl = Annotated[str, typer.Argument(metavar="STORE", help="path or URL of a run's store, or its config")]
Overrides = Annotated[
    list[str] | None, typer.Option("--set", metavar="A.B=VALUE", help="override a key of the config; may be repeated")
]
OtherStore = Annotated[
    str | None, typer.Option("--store", metavar="URL", help="path or URL to use instead of output.store")
]
AsJson = Annotated[bool, typer.Option("--json", help="print machine-readable JSON on stdout")]
Fresh = Annotated[bool, typer.Option("--fresh", help="erase the store first instead of resuming")]
WithColumns = Annotated[
    list[str] | None, typer.Option("--with", metavar="COLUMN", help="copy a column of the input table; may be repeated")
]
ConfigPaths = Annotated[list[Path], typer.Argument(metavar="CONFIG", help="YAML files, with or without `sweep:`")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="only count the steps, compute nothing")]
Log = Annotated[Literal["text", "json"], typer.Option("--log", help="progress as text, or as one JSON object per line")]
Profile = Annotated[bool, typer.Option("--profile", help="save Dask's performance report beside the run's own")]
Sample = Annotated[
    int | None,
    typer.Option("--sample", min=50, help="number of rows to sample; without it all of up to 5,000, else 2,000"),
]
Out = Annotated[Path | None, typer.Option("--write", metavar="OUT", help="write the config with the suggested values")]
Watch = Annotated[bool, typer.Option("--watch", help="update the table until the run ends; redirected: print lines")]
OutFile = Annotated[str, typer.Argument(metavar="OUT", help="path or URL: .npy, .parquet, .arrow or .csv")]
InputSettings = Annotated[
    list[str] | None,
    typer.Option(
        "--input", metavar="KEY=VALUE", help="a key of the input section: key=points or kind=idx; may be repeated"
    ),
]
MaxRatio = Annotated[
    float | None,
    typer.Option(
        min=0.0, help="rows with a larger distance_ratio are far; default: the 99.9 % quantile of the training points"
    ),
]
Work = Annotated[
    str | None, typer.Option(metavar="URL", help="folder for finished blocks until the end; default: OUT.work")
]
Into = Annotated[
    str | None,
    typer.Option(
        metavar="obsm/NAME", help="the matrix to write in OUT.h5ad, which is not changed otherwise; default: obsm/X_lle"
    ),
]
Keep = Annotated[int | None, typer.Option(min=1, metavar="N", help="keep only the N most recently published versions")]


def store_of(text: str) -> str:
    """The store of a STORE argument: itself, or output.store if it is the YAML file of a config. Raises ConfigError."""
    path = Path(text)
    if "://" in text or path.suffix not in {".yaml", ".yml"} or path.is_dir():
        return text
    if not path.exists():
        raise ConfigError(f"{text}: expected the config of a run or its store, found nothing; correct the name")
    config = load(path, None, None)
    if changed := _changed_keys(config):
        keys = listed(changed, NAMED_KEYS)
        typer.echo(f"note: {text} differs from the config of the last run in {keys}; `lle run` applies it", err=True)
    return config.output.store


def _changed_keys(config: "Config") -> list[str]:
    """The keys that can change the coordinates and have another value than in the last run, or published version."""
    from ..config.load import resolved
    from ..storage.store import Store
    from ..storage.versions import Versions

    contents, store = [resolved(config)], Store(config.output.store)
    with contextlib.suppress(LleError):  # the command names what is wrong with the store
        run = Versions(store.url).published() if store.has_versions() else store
        contents.append(run.attributes().get("config") or contents[0])
    names = OF_PCA if config.method == "pca" else OF_RESULT
    now, before = (
        {f"{name}.{key}": value for name in names for key, value in content.get(name, {}).items()}
        | {"method": content.get("method")}
        for content in (contents[0], contents[-1])
    )
    return [key for key in sorted(before | now) if before.get(key) != now.get(key)]


def load(config: Path, overrides: list[str] | None, store: str | None) -> "Config":
    """The config of a file. Raises ConfigError."""
    from ..config.load import load_config

    return load_config(config, tuple(overrides or ()), store)
