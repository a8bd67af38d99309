"""The file that a command writes: local, or an object at a URL. It appears whole or not at all."""

import contextlib
import os
import tempfile
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import BinaryIO

from ..core.errors import ConfigError
from ..core.patterns import is_url, local_path, matches
from ..storage.remote_objects import RemoteObjects
from ..storage.storage_errors import storage_errors
from ..storage.store import Store

SUFFIXES = (".npy", ".parquet", ".arrow", ".csv")


def check_out(out: str, suffixes: tuple[str, ...] = SUFFIXES) -> None:
    """Raises ConfigError if `out` has another suffix, no folder, or a URL that cannot be opened."""
    if Path(out).suffix not in suffixes:
        raise ConfigError(f"{out}: expected a name that ends in {', '.join(suffixes)}; choose another name")
    if is_url(out):
        RemoteObjects(out.rsplit("/", 1)[0])
        return
    path = Path(local_path(out))
    if path.is_dir():
        raise ConfigError(f"{out}: expected the name of a file, found a folder; choose another name")
    if not path.absolute().parent.is_dir():
        raise ConfigError(f"{out}: its folder does not exist; create it first")


def will_replace(out: str) -> bool:
    """Whether a table or an array at `out` would replace a local file; an .h5ad file gets only one more matrix."""
    return Path(out).suffix in SUFFIXES and not is_url(out) and Path(local_path(out)).is_file()


def folders_of_run(store: str) -> list[str]:
    """The working directory: absolute, and relative to a local store, so that both can be moved together."""
    folder = os.getcwd()
    return [folder] if is_url(store) else [folder, os.path.relpath(folder, os.path.realpath(local_path(store)))]


def refuse_input(out: str, run: Store, *sections: Mapping[str, object]) -> None:
    """Raises ConfigError if `out` is a local file that a run, or one of the input sections, reads or would read.

    The command would otherwise replace that file. Paths of a run are relative to its working directory.
    """
    if is_url(out):
        return
    path, attributes = Path(local_path(out)).absolute(), run.attributes()
    folders = [os.path.join(os.path.realpath(local_path(run.url)), folder) for folder in attributes.get("folders", [])]
    neighbors = attributes["config"]["neighbors"]
    for section in (attributes["config"]["input"], neighbors, neighbors["precomputed"] or {}, *sections):
        for pattern in map(section.get, ("path", "labels", "id", "k_per_point")):
            if not isinstance(pattern, str):
                continue
            patterns = [
                os.path.normpath(os.path.join(folder, local_path(pattern))) for folder in (os.getcwd(), *folders)
            ]
            files = [file for each in patterns for file in (each, *matches(each)) if os.path.isfile(file)]
            if path.is_file() and any(os.path.samefile(file, path) for file in files):
                raise ConfigError(f"{out}: this file holds the input, which would be lost; choose another name")
            if any(path.match(each) for each in patterns):
                raise ConfigError(f"{out}: a later run would read this file as input ({pattern}); choose another name")


@contextlib.contextmanager
def written_whole(out: str) -> Iterator[BinaryIO]:
    """A file to write to. At the end of the block it replaces `out`; after an error `out` stays as it was.

    An object is written to a temporary file first and then uploaded, because an object store shows an object only
    when its upload is complete.
    """
    if is_url(out):
        parent, name = out.rsplit("/", 1)
        folder = RemoteObjects(parent)
        with tempfile.NamedTemporaryFile(suffix=".partial") as file:
            with storage_errors(file.name):
                yield file  # type: ignore[misc]  # mypy: a wrapper with the methods of BinaryIO
                file.flush()
            folder.put(name, Path(file.name))
        return
    with storage_errors(out), replaced_whole(Path(local_path(out))) as partial, partial.open("xb") as file:
        yield file


@contextlib.contextmanager
def replaced_whole(path: Path) -> Iterator[Path]:
    """A file beside `path` to write. It replaces `path` at the end of the block, and is deleted after an error.

    Its name is of this process alone, because others may write to `path` at the same time.
    """
    partial = path.with_name(f".{uuid.uuid4().hex}.partial")
    try:
        yield partial
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
