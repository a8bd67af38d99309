"""Arguments and options that several commands share."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..core.errors import ConfigError

if TYPE_CHECKING:
    from ..config.models import Config

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
