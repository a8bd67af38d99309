"""Arguments and options that several commands share, and an example of each command."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from ..core.errors import ConfigError

if TYPE_CHECKING:
    from ..config.models import Config

ConfigPath = Annotated[Path, typer.Argument(metavar="CONFIG", help="the YAML file of the run")]
StoreUrl = Annotated[str, typer.Argument(metavar="STORE", help="path or URL of a run's store, or its config")]
ConfigPaths = Annotated[list[Path], typer.Argument(metavar="CONFIG", help="YAML files, with or without `sweep:`")]
Overrides = Annotated[
    list[str] | None, typer.Option("--set", metavar="A.B=VALUE", help="override a key of the config; may be repeated")
]
OtherStore = Annotated[
    str | None, typer.Option("--store", metavar="URL", help="path or URL to use instead of output.store")
]
AsJson = Annotated[bool, typer.Option("--json", help="print machine-readable JSON on stdout")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="only count the steps, compute nothing")]
Fresh = Annotated[bool, typer.Option("--fresh", help="erase the store first instead of resuming")]

Log = Annotated[Literal["text", "json"], typer.Option("--log", help="progress as text, or as one JSON object per line")]
Profile = Annotated[bool, typer.Option("--profile", help="save Dask's performance report beside the run's own")]
Sample = Annotated[int, typer.Option("--sample", min=50, help="number of points to sample")]
Out = Annotated[Path | None, typer.Option("--write", metavar="OUT", help="write the config with the suggested values")]
Watch = Annotated[bool, typer.Option("--watch", help="update the table until the run ends; redirected: print lines")]

OutFile = Annotated[str, typer.Argument(metavar="OUT", help="path or URL: .npy, .parquet, .arrow or .csv")]
WithColumns = Annotated[
    list[str] | None, typer.Option("--with", metavar="COLUMN", help="copy a column of the input table; may be repeated")
]

EXAMPLES = {
    "init": "lle init customers.parquet -o job.yaml",
    "run": "lle run job.yaml --set neighbors.n_neighbors=20",
    "sweep": "lle sweep sweep.yaml --dry-run",
    "plan": "lle plan job.yaml --set execution.cluster.workers=4",
    "validate": "lle validate job.yaml",
    "suggest": "lle suggest job.yaml --write better.yaml",
    "status": "lle status runs/rows.zarr --watch",
    "verify": "lle verify runs/rows.zarr",
    "report": "lle report runs/rows.zarr",
    "explore": "lle explore runs/rows.zarr --port 8800 --no-browser",
    "export": "lle export runs/rows.zarr rows.parquet --with city",
    "transform": "lle transform runs/rows.zarr new.parquet coordinates.parquet",
    "versions": "lle versions runs/nightly.zarr",
    "publish": "lle publish runs/nightly.zarr 20260102T030405Z-9f3e",
    "clean": "lle clean runs/nightly.zarr --keep 2",
    "schema": "lle schema > schema.json",
}
"""An example of each command, for its --help."""


def store_of(text: str) -> str:
    """The store of a STORE argument: itself, or output.store if it is the YAML file of a config. Raises ConfigError."""
    path = Path(text)
    if "://" in text or path.suffix not in {".yaml", ".yml"} or path.is_dir():
        return text
    if not path.exists():
        raise ConfigError(f"{text}: expected the config of a run or its store, found nothing; correct the name")
    return load(path, None, None).output.store


def load(config: Path, overrides: list[str] | None, store: str | None) -> "Config":
    """The config of a file. Raises ConfigError."""
    from ..config.load import load_config

    return load_config(config, tuple(overrides or ()), store)
