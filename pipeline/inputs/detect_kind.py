"""The kind of an input from its name, and for local files without a known suffix from their first bytes."""

import glob
import gzip
import json
import os
import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from ..core.errors import InputError, listed
from ..core.patterns import PACKED, is_url
from ..storage.run_group import POINTER
from .damage import reading
from .files import find_paths

SUFFIXES = {
    ".npy": "npy",
    ".npz": "npz",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".arrow": "parquet",
    ".feather": "parquet",
    ".csv": "csv",
    ".tsv": "csv",
    ".zarr": "zarr",
    ".h5ad": "anndata",
}
MAGIC = {b"\x93NUMPY": "npy", b"PK\3\4": "npz", b"PAR1": "parquet", b"\x89HDF": "anndata", b"\0\0": "idx"}
IDX_NAME = re.compile(r"idx\d")
ZARR_HEADS = ("zarr.json", ".zgroup", ".zarray")
READERS = {
    **dict.fromkeys((".xlsx", ".xlsm", ".xls"), "excel(path)"),
    ".json": "json(path)",
    **dict.fromkeys((".jsonl", ".ndjson"), "json(path, lines=True)"),
    ".dta": "stata(path)",
    ".sav": "spss(path)",
    **dict.fromkeys((".sas7bdat", ".xpt"), "sas(path)"),
    **dict.fromkeys((".pkl", ".pickle"), "pickle(path)"),
}
"""What pandas reads such files with."""
CURES = {
    **{suffix: f"write Parquet: pandas.read_{reader}.to_parquet(out)" for suffix, reader in READERS.items()},
    **dict.fromkeys(
        (".txt", ".tab", ".dat", ".data"), "if it is a table with a header line, rename it so that it ends in .csv"
    ),
    ".yaml": "a config is an argument of lle run",
    **dict.fromkeys((".zip", ".tar", ".tgz", ".7z"), "unpack it first"),
    **dict.fromkeys(PACKED, "decompress it first; only CSV files, and IDX files with gzip, may be compressed"),
}

RUN_CURE = "`lle export` and `lle.open_run` read its coordinates"


class Detected(NamedTuple):
    """A kind of input and the path, pattern or URL of its files."""

    kind: str
    path: str


def detect_kind(data: str) -> Detected:
    """The kind of a file, a folder, a pattern or a URL. For a folder of table files: a pattern that names them.

    Raises InputError if there is none, or if the kind is not known.
    """
    if is_url(data):
        return Detected(kind_of_name(data) or _unknown([data], data), data)
    first, *others = find_paths(data, "path")
    if others and len({_kinds(name) for name in (first, *others)}) > 1:
        _unknown([first, *others], data)
    if os.path.isdir(first):
        return Detected(kind, data) if (kind := _kind_of_zarr(Path(first))) else _in_folder(Path(first))
    return Detected(kind_of_name(first) or _kind_of_content(first) or _unknown([first], data), data)


def kind_of_name(name: str) -> str | None:
    suffix = Path(name.rstrip("/")).suffix.lower()
    if suffix in PACKED and Path(name).stem.lower().endswith((".csv", ".tsv")):
        return "csv"
    return "idx" if suffix not in SUFFIXES and IDX_NAME.search(Path(name).name) else SUFFIXES.get(suffix)


def _kinds(name: str) -> tuple[str | None, Sequence[str]]:
    """The kind of a file, and for IDX files idx1 (labels) or idx3 (images), by its name."""
    kind = kind_of_name(name)
    return kind, tuple(IDX_NAME.findall(name)[-1:]) if kind == "idx" else ()


def _kind_of_content(path: str) -> str | None:
    if Path(path).suffix.lower() in {*READERS, ".zip"}:  # some begin as an .npz or IDX file does
        return None
    with reading(path), open(path, "rb") as file:
        head = file.read(8)
        if head.startswith(b"\x1f\x8b"):
            with suppress(OSError, EOFError), gzip.open(path) as unpacked:
                return "idx" if unpacked.read(2) == b"\0\0" else None
    return next((kind for magic, kind in MAGIC.items() if head.startswith(magic)), None)


def _kind_of_zarr(folder: Path) -> str | None:
    """zarr or anndata for a folder with Zarr metadata; None for other folders."""
    if not any((folder / head).is_file() for head in ZARR_HEADS):
        return None
    for head in ("zarr.json", ".zattrs"):
        with suppress(OSError, ValueError, AttributeError):
            content = json.loads((folder / head).read_text())
            if (content.get("attributes") or content).get("encoding-type") == "anndata":
                return "anndata"
    return "zarr"


def _in_folder(folder: Path) -> Detected:
    """The files of a folder that holds files of one kind only."""
    shown = [path for path in folder.iterdir() if not path.name.startswith(("_", "."))]
    names = sorted(path.name for path in shown if path.is_file())
    if not names and shown:
        cure = f"name one of them, or files by a pattern, as {folder}/*/*.parquet"
        _unknown(sorted(f"{path.name}/" for path in shown), str(folder), cure)
    kinds = {(*_kinds(name), Path(name).suffix) for name in names}
    kind, _, suffix = kinds.pop() if len(kinds) == 1 else (None, (), "")
    rest = "[!_]*" if any(folder.glob(f"_*{suffix}")) else "*"  # a pattern leaves out hidden files by itself
    return Detected(kind or _unknown(names, str(folder)), str(Path(glob.escape(str(folder))) / f"{rest}{suffix}"))


def _unknown(names: Sequence[str], data: str, cure: str = "") -> str:
    cure = cure or CURES.get(Path(names[0]).suffix.lower() if names else "", "name the files, or write them as Parquet")
    if POINTER in names:
        cure = f"it holds the versions of a job: {RUN_CURE}"
    if {kind_of_name(name) for name in names} == {"csv"}:
        cure = "give the files names with one ending"
    if {kind_of_name(name) for name in names} == {"idx"}:
        cure = f"name one file of images, such as {max(names, key=_kinds)}: that of its labels is found beside it"
    raise InputError(
        f"{data}: expected names that end in {', '.join(SUFFIXES)}, a compressed CSV or IDX file, a Zarr folder, or a "
        f"folder or pattern of files of one kind; found {listed(names) or 'an empty folder'}; {cure}"
    )
