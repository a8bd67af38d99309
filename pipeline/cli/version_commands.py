"""The commands for versions: list them, publish another one, delete what stopped runs left."""

from typing import Annotated

import typer

from .arguments import AsJson, StoreUrl, store_of
from .finish import finish
from .output import describe_clean, describe_versions

VersionId = Annotated[str, typer.Argument(metavar="VERSION", help="the version to publish, as lle versions lists it")]
Keep = Annotated[int | None, typer.Option(min=1, metavar="N", help="keep only the N most recently published versions")]


def versions(store: StoreUrl, as_json: AsJson = False) -> None:
    """List the versions of a store with output.keep: date, rows, verdict, size, and which one is published."""

    from ..jobs.versions import list_versions

    finish(lambda: list_versions(store_of(store)), as_json, describe_versions)


def publish(store: StoreUrl, version: VersionId, as_json: AsJson = False) -> None:
    """Publish another finished version: roll back to an older one, or forward again. Nothing is computed or deleted."""

    from ..jobs.versions import publish_version

    def describe(result: dict[str, str | None]) -> str:
        return f"published: {result['published']} (before: {result['before'] or 'none'})"

    finish(lambda: publish_version(store_of(store), version), as_json, describe)


def clean(store: StoreUrl, keep: Keep = None, as_json: AsJson = False) -> None:
    """Delete unfinished versions and unfinished temporary files. Refused while a run is active."""

    from ..jobs.versions import clean_store

    finish(lambda: clean_store(store_of(store), keep), as_json, describe_clean)
