"""The interfaces of an input (Source) and of one file of it (Rows), and the state of a file (Stamp)."""

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Literal, NamedTuple
from urllib.parse import unquote

import numpy as np

from ..core.arrays import Float64
from ..core.errors import InputError
from ..core.machine import available_memory
from ..core.patterns import is_url
from ..storage.bundles import Array
from .column_names import ColumnRoles
from .damage import reading

if TYPE_CHECKING:
    import pyarrow as pa

    from .labels import Labels

LabelKind = Literal["none", "categorical", "continuous"]
Fingerprint = dict[str, object]


class Coding(NamedTuple):
    """How stored labels become numbers: categorical ones are indices into their names, in `width` columns.

    `code_of` is None if they are numbers already.
    """

    kind: LabelKind
    names: tuple[str, ...] | None = None
    code_of: Mapping[Hashable, int] | None = None
    width: int = 1


NO_LABELS = Coding("none", width=0)


class Stored(ABC):
    """What an input and the arrays and tables in its files have in common."""

    detects_changes: bool = True
    """Whether fingerprint and stamps detect changed data; False if the storage gives neither tag nor time."""

    def bytes_beside(self, n_rows: int) -> int:
        """Maximum bytes used in addition to the result while reading n_rows rows, for decoding and for caches."""
        return 0

    @abstractmethod
    def fingerprint(self) -> Fingerprint:
        """JSON data that changes when the names, sizes or times of the files change. Never reads the data."""

    def remark(self) -> str:
        """A warning about the points that needs no reading, for instance missing chunks; empty if there is none."""
        return ""


class Source(Stored):
    """An input of n_rows points with n_features numbers each, read by ranges of at least one row.

    dtype is the dtype of `read`: float32 if every stored value fits it exactly (float16, float32, bool and
    integers of 8 and 16 bits), float64 otherwise.
    """

    n_rows: int
    n_features: int
    dtype: np.dtype[np.generic]
    roles: ColumnRoles | None = None
    """The columns of the input if it is a table; `read` returns its features."""
    labels: "Labels | Coding" = NO_LABELS
    """Their kind and names; the first use may read the labels once (never the points)."""
    image_shape: tuple[int, ...] | None = None
    """Height and width of the image that each row is, and 3 if it has colours; None if rows are no images."""

    @property
    def feature_names(self) -> tuple[str, ...] | None:
        """Names of the columns that `read` returns, if the input is a table."""
        return None if self.roles is None else self.roles.features

    def locate(self, row: int) -> str:
        """Position of a row, for messages: its file and its row number there, counted from 0."""
        return f"row {row}"

    def read(self, start: int, stop: int) -> Array:
        """Rows [start, stop) as a new C-contiguous (rows, n_features) array of `dtype`. Raises InputError."""
        with self._reading(start, stop):
            return self._read(start, stop)

    def read_labels(self, start: int, stop: int) -> Float64 | None:
        """(rows,) or (rows, q) float64, NaN for a missing label; None without labels. Raises InputError."""
        with self._reading(start, stop):
            return self._read_labels(start, stop)

    def column_types(self, names: Sequence[str]) -> "dict[str, pa.DataType]":
        """The Arrow type of each of these columns of a table. CSV files are read as a whole for it.

        Raises InputError if the input is no table.
        """
        raise InputError("input: only Parquet and CSV files have columns with names")

    def read_columns(self, names: Sequence[str], start: int, stop: int) -> "pa.Table":
        """Any columns of rows [start, stop) of a table as an Arrow table; text, dates and missing entries included.

        CSV entries are text. Raises InputError.
        """
        with self._reading(start, stop):
            return self._read_columns(names, start, stop)

    @contextmanager
    def _reading(self, start: int, stop: int) -> Iterator[None]:
        """Check the range, and make an InputError of every error that damaged data cause."""
        if not 0 <= start <= stop <= self.n_rows:  # a fault of the caller, not of the data
            raise ValueError(f"rows [{start}, {stop}) requested from an input of {self.n_rows} rows")
        where = f"input, rows {start} to {stop - 1}"
        try:
            with reading(where):
                yield
        except MemoryError:
            n_bytes = (stop - start) * self.n_features * self.dtype.itemsize
            if n_bytes < available_memory():
                raise
            raise InputError(
                f"{where}: {self.n_features} columns need {n_bytes} bytes, more than the machine has; check the sizes "
                f"in the input's header, which may be damaged, or lower execution.block_points"
            ) from None

    @abstractmethod
    def _read(self, start: int, stop: int) -> Array:
        """As `read`, which explains its errors."""

    def _read_labels(self, start: int, stop: int) -> Float64 | None:
        return None

    def _read_columns(self, names: Sequence[str], start: int, stop: int) -> "pa.Table":
        raise InputError("input: only Parquet and CSV files have columns with names")

    def stamps(self, size: int, n_rows: int | None = None) -> list[str]:
        """One text per block of `size` rows. A text changes if its rows may have changed; no data is read.

        By default from the input as a whole; inputs of many files or chunks use those that hold the rows.
        `n_rows`: only the first n_rows rows.
        """
        fingerprint, n = json.dumps(self.fingerprint(), sort_keys=True), n_rows or self.n_rows
        return [stamp_text([fingerprint, start, min(start + size, n)]) for start in range(0, n, size)]

    def state(self, start: int, stop: int) -> str:
        """Identity of the files and file states that `read` uses for these rows, known from opening; else empty."""
        return ""


class Rows(Stored):
    """The rows of one stored array or table, in their stored dtype. `where` names it in messages."""

    where: str
    shape: tuple[int, ...]
    dtype: np.dtype[np.generic]

    @abstractmethod
    def read(self, start: int, stop: int) -> Array:
        """Rows [start, stop) in any numeric or text dtype; may be a view of a mapped file. Raises InputError."""

    def stamp(self, start: int, stop: int) -> list[object]:
        """Data that changes if rows [start, stop) may have changed; by default the fingerprint."""
        return [self.fingerprint(), start, stop]

    def known_stamp(self, start: int, stop: int) -> list[object]:
        """The same from what is known since opening; sends no new request to the storage."""
        return self.stamp(start, stop)


class Stamp(NamedTuple):
    """A file and its state, the key of all caches of file contents.

    tag: the ETag of a remote object, "" if the service gives none.
    """

    path: str
    size: int
    mtime_ns: int
    tag: str = ""

    @property
    def is_remote(self) -> bool:
        return is_url(self.path)

    @property
    def detects_changes(self) -> bool:
        """Whether changed data changes the stamp; False for a web server that gives neither tag nor time."""
        return bool(self.tag or self.mtime_ns)

    def describe(self) -> dict[str, object]:
        """This file's part of an input's fingerprint. The time of a remote object counts only if it has no tag."""
        name = PurePosixPath(unquote(self.path) if self.is_remote else self.path).name
        state = {"tag": self.tag} if self.tag else {"mtime_ns": self.mtime_ns}
        return {"name": name, "size": self.size, **state}


def stamp_text(content: object) -> str:
    return hashlib.blake2b(json.dumps(content, sort_keys=True, default=str).encode(), digest_size=16).hexdigest()
