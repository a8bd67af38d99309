"""Mutated input files: `lle validate` and reading all rows end like a reference reader, or with exit code 2."""

import gzip
import io
import shutil
import struct
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numcodecs
import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import yaml
import zarr

from lle.config.load import load_config
from lle.core.errors import InputError, LleError
from lle.inputs import Source
from lle.stages.ingest import open_input
from tests.fuzz.campaign import BrokenRule, Limits
from tests.fuzz.commands import SERIAL, call, write
from tests.fuzz.mutate import choose, mutated_bytes

LIMITS = Limits(seconds=5, n_bytes=300 * 2**20)
N, D = 60, 4
MAX_ROWS = 100_000
"""Rows read of an input whose damaged header promises more."""
Array = npt.NDArray[Any]


def prepare(shared: Path) -> None:
    """Small inputs of every kind."""
    write_inputs(shared)


def write_inputs(folder: Path) -> None:
    """One small file (or Zarr folder) of every form, and `inputs.yaml`, the list of their input sections."""
    rng = np.random.default_rng(0)
    points, label = rng.standard_normal((N, D)), rng.integers(0, 3, N)
    np.save(folder / "c.npy", points)
    np.save(folder / "f.npy", np.asfortranarray(points.astype("f4")))
    np.save(folder / "label.npy", label)
    np.save(folder / "i.npy", rng.integers(-9, 9, (N, D)).astype(">i2"))
    np.savez(folder / "stored.npz", points=points, label=label)
    np.savez_compressed(folder / "packed.npz", points=points, label=label)
    np.savez_compressed(folder / "packed_f.npz", points=np.asfortranarray(points), label=label)
    pixels = struct.pack(">BBBB3I", 0, 0, 8, 3, N, 2, 2) + rng.bytes(4 * N)
    write(folder / "pixels.idx", pixels)
    write(folder / "pixels.idx.gz", gzip.compress(pixels, mtime=0))
    _write_tables(folder, points, label)
    for zarr_format, name in ((2, "two.zarr"), (3, "three.zarr")):
        group = zarr.open_group(folder / name, mode="w", zarr_format=zarr_format)
        compressor: Any = numcodecs.Zlib() if zarr_format == 2 else "auto"  # Blosc decodes damage to random bytes
        group.create_array("points", data=points, chunks=(25, 3), compressors=compressor)
        group.create_array("label", data=label, chunks=(N,))
    (folder / "inputs.yaml").write_text(yaml.safe_dump(_sections(folder)))


def _write_tables(folder: Path, points: Array, label: Array) -> None:
    frame = pd.DataFrame(points, columns=[f"x{j}" for j in range(D)]).assign(label=[f"class {k}" for k in label])
    frame.to_csv(folder / "plain.csv", index=False)
    frame.to_csv(folder / "packed.csv.gz", index=False, compression={"method": "gzip", "mtime": 0})
    frame.to_csv(folder / "quoted.csv", index=False, quoting=1, lineterminator="\r\n")
    frame.to_parquet(folder / "pandas.parquet", row_group_size=25, index=False)
    table = pa.Table.from_pandas(frame, preserve_index=False).replace_schema_metadata(None)
    pq.write_table(table, folder / "zstd.parquet", compression="zstd", row_group_size=30, use_dictionary=False)


def _sections(folder: Path) -> list[dict[str, str]]:
    """The input sections, with absolute paths."""
    kinds = {"npy": "npy", "npz": "npz", "idx": "idx", "gz": "idx", "csv": "csv", "parquet": "parquet"}
    sections = []
    for path in sorted(folder.iterdir()):
        kind = "csv" if path.name.endswith("csv.gz") else kinds.get(path.suffix[1:], "")
        if path.suffix == ".zarr":
            sections.append({"kind": "zarr", "url": str(path), "array": "points", "labels": "label"})
        elif kind and path.name != "label.npy":
            labels = {"npy": str(folder / "label.npy"), "npz": "label", "csv": "label", "parquet": "label", "idx": ""}[
                kind
            ]
            named = {"labels": labels} if labels else {}
            sections.append({"kind": kind, "path": str(path), **({"key": "points"} if kind == "npz" else {}), **named})
    return sections


def run(rng: np.random.Generator, shared: Path, own: Path) -> str:
    """Mutate one file of one input, validate it, and read all of it."""
    section = choose(rng, yaml.safe_load((shared / "inputs.yaml").read_text()))
    if rng.random() < 0.3:
        section.pop(choose(rng, [key for key in section if key in ("labels", "key", "array")] or [""]), None)
    place = "url" if section["kind"] == "zarr" else "path"
    damaged = _damaged_copy(rng, Path(section[place]), own)
    section[place] = str(damaged)
    config = write(
        own / "config.yaml",
        yaml.safe_dump({"input": section, "output": {"store": str(own / "run.zarr")}})
        + SERIAL
        + "neighbors: {n_neighbors: 5}\n",
    )
    ended = call("validate", config, codes=(0, 2))
    if ended.code:
        return f"{section['kind']} refused"
    return f"{section['kind']} {_read_and_compare(config, section, damaged)}"


def _damaged_copy(rng: np.random.Generator, source: Path, own: Path) -> Path:
    copy = own / source.name
    if source.is_dir():
        shutil.copytree(source, copy)
        target = choose(rng, sorted(path for path in copy.rglob("*") if path.is_file()))
        if rng.random() < 0.1:
            target.unlink()
            return copy
    else:
        shutil.copy(source, copy)
        target = copy
    target.write_bytes(mutated_bytes(rng, target.read_bytes()))
    return copy


def _read_and_compare(config: Path, section: dict[str, str], damaged: Path) -> str:
    try:
        source = open_input(load_config(config))
        rows = _all_rows(source)
    except InputError:
        return "refused while reading"
    except LleError as error:
        raise BrokenRule(f"{type(error).__name__} with exit code {error.exit_code}: {error}\n{section}") from error
    if rows is None:
        return "large"
    if not rows.shape == (source.n_rows, source.n_features) or rows.dtype != source.dtype:
        raise BrokenRule(
            f"rows {rows.shape} {rows.dtype} of an input of {source.n_rows} x {source.n_features}\n{section}"
        )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            expected = REFERENCES[section["kind"]](damaged, section)
        except Exception:
            return "read, reference refuses"
    if expected is None:
        return "read, no reference"
    with np.errstate(all="ignore"):
        same = expected.size == rows.size and np.array_equal(
            np.asarray(expected, rows.dtype).reshape(rows.shape), rows, equal_nan=True
        )
    if not same:
        raise BrokenRule(f"the rows differ from those of the reference reader\n{section}\n{rows[:3]}\n{expected[:3]}")
    return "read as the reference"


def _all_rows(source: Source) -> Array | None:
    """Every row and label, read in blocks; None beyond MAX_ROWS, of which only the first and the last are read."""
    n = source.n_rows
    if n * max(source.n_features, 1) > MAX_ROWS:
        for start, stop in ((0, min(n, 20)), (max(n - 20, 0), n)):
            source.read(start, stop)
            source.read_labels(start, stop)
        return None
    blocks = [source.read(start, min(start + 17, n)) for start in range(0, n, 17)]
    for start in range(0, n, 17):
        source.read_labels(start, min(start + 17, n))
    return np.concatenate(blocks) if blocks else np.empty((0, source.n_features), source.dtype)


def _npy(path: Path, section: dict[str, str]) -> Array:
    return np.asarray(np.load(path, allow_pickle=False))


def _npz(path: Path, section: dict[str, str]) -> Array:
    with np.load(path, allow_pickle=False) as archive:
        return np.asarray(archive[section.get("key", "points")])


def _idx(path: Path, section: dict[str, str]) -> Array | None:
    data = path.read_bytes()
    data = gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data
    n_dims = data[3]
    shape = struct.unpack(f">{n_dims}I", data[4 : 4 + 4 * n_dims])
    dtype = {8: "u1", 9: "i1", 11: ">i2", 12: ">i4", 13: ">f4", 14: ">f8"}[data[2]]
    return np.frombuffer(data, dtype, int(np.prod(shape, dtype=object)), 4 + 4 * n_dims).reshape(shape[0], -1)


def _features(frame: pd.DataFrame, section: dict[str, str]) -> Array | None:
    """The numeric columns but the label, if there is no column that a reader may see differently."""
    features = frame.drop(columns=[section["labels"]] if "labels" in section else [])
    numeric = [name for name in features if features[name].dtype.kind in "iuf"]
    return features[numeric].to_numpy() if len(numeric) == D and len(frame.columns) == D + 1 else None


def _csv(path: Path, section: dict[str, str]) -> Array | None:
    data = path.read_bytes()
    text = (gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data).decode("utf-8")
    if text.count('"') % 2 or "\n\n" in text or "\0" in text or text.count("\r") not in (0, text.count("\n")):
        return None  # readers treat such lines differently
    frame = pd.read_csv(io.StringIO(text), float_precision="round_trip")
    return _features(frame, section) if isinstance(frame.index, pd.RangeIndex) else None


def _parquet(path: Path, section: dict[str, str]) -> Array | None:
    return _features(pq.read_table(path).to_pandas(ignore_metadata=True), section)


def _zarr(path: Path, section: dict[str, str]) -> Array:
    group: Any = zarr.open_group(path, mode="r")
    return np.asarray(group[section.get("array", "points")][:])


REFERENCES: dict[str, Callable[[Path, dict[str, str]], Array | None]] = {
    "npy": _npy,
    "npz": _npz,
    "idx": _idx,
    "csv": _csv,
    "parquet": _parquet,
    "zarr": _zarr,
}
