"""What every input offers (Source), and what one file of it offers (Rows)."""

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from pipeline.core.errors import InputError

AnyArray = npt.NDArray[Any]
FloatArray = npt.NDArray[np.float64]
LabelKind = Literal["none", "categorical", "continuous"]
Fingerprint = dict[str, Any]

_DTYPE_CURES = {
    "c": "give the real and the imaginary part as separate columns",
    "O": "save it with a numeric dtype, for instance x.astype('float64')",
    "V": "save the fields as the columns of one numeric array",
    "M": "convert times to numbers first",
    "m": "convert times to numbers first",
}


class Source(ABC):
    """An input of n_rows points with n_features numbers each, read by ranges of rows.

    dtype is what `read` returns: float32 where every stored value fits it exactly (float16, float32, bool and
    integers of 8 and 16 bits), float64 otherwise.
    """

    n_rows: int
    n_features: int
    dtype: np.dtype[Any]
    feature_names: tuple[str, ...] | None = None
    """The columns of a table that `read` gives."""

    def locate(self, row: int) -> str:
        """Where a row stands, for messages: the file that holds it and its number there, counted from 0."""
        return f"row {row}"

    def remark(self) -> str:
        """What people should know of the points before they are read, as far as a listing tells; else empty."""
        return ""

    @property
    def label_kind(self) -> LabelKind:
        """What the labels are. The first use may read the labels once (never the points)."""
        return "none"

    @property
    def label_names(self) -> tuple[str, ...] | None:
        """The names of categorical labels; `read_labels` then gives indices into them."""
        return None

    @property
    def label_width(self) -> int:
        """Label values per row: 0 without labels, 1 for a vector, else the columns of the label array."""
        return 0

    @abstractmethod
    def read(self, start: int, stop: int) -> AnyArray:
        """Rows [start, stop) as a new C-contiguous (rows, n_features) array of `dtype`. Raises InputError."""

    def read_labels(self, start: int, stop: int) -> FloatArray | None:
        """(rows,) or (rows, q) float64, NaN where a label is missing; None without labels.

        Raises InputError.
        """
        return None

    def bytes_beside(self, n_rows: int) -> int:
        """The most that reading n_rows rows holds beside them: what can only be decoded as a whole, and what stays."""
        return 0

    @abstractmethod
    def fingerprint(self) -> Fingerprint:
        """JSON-able; changes when the input does, as far as names, sizes and times tell.

        Never reads the data.
        """

    @property
    def can_tell(self) -> bool:
        """Whether fingerprint and stamps notice changed data; False where the storage says nothing about its files."""
        return True

    def stamps(self, size: int, n_rows: int | None = None) -> list[str]:
        """One text per block of `size` rows. While it stays the same, so do the rows; nothing is read to tell it.

        Here for the input as a whole; an input of many files or chunks says it of those that hold the rows. With
        `n_rows` for the first so many rows.
        """
        whole, n = json.dumps(self.fingerprint(), sort_keys=True), n_rows or self.n_rows
        return [stamp_text([whole, start, min(start + size, n)]) for start in range(0, n, size)]

    def state(self, start: int, stop: int) -> str:
        """Which rows of which files, in what state, `read` takes, as far as opening the input has told; else empty."""
        return ""


Stamper = Callable[[int, int], Any]


class Rows(ABC):
    """The rows of one stored array or table, as they are stored. `where` names it in messages."""

    where: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @abstractmethod
    def read(self, start: int, stop: int) -> AnyArray:
        """Rows [start, stop), perhaps as a view of a mapped file, in any numeric or text dtype.

        Raises InputError.
        """

    def bytes_beside(self, n_rows: int) -> int:
        """As Source.bytes_beside, of this array alone; 0 where every row can be read by itself."""
        return 0

    @abstractmethod
    def fingerprint(self) -> Fingerprint:
        """As Source.fingerprint, of this array alone."""

    @property
    def can_tell(self) -> bool:
        """As Source.can_tell, of this array alone."""
        return True

    def remark(self) -> str:
        """As Source.remark, of this array alone."""
        return ""

    def told(self) -> Fingerprint:
        """What opening it has told of its state; the storage is not asked again."""
        return self.fingerprint()

    def stamper(self) -> Stamper:
        """A function from rows [start, stop) to what tells, unread, whether they changed; the whole file here."""
        whole = self.fingerprint()
        return lambda start, stop: [whole, start, stop]


def stamp_text(content: Any) -> str:
    """A short text that stands for JSON-able content."""
    return hashlib.blake2b(json.dumps(content, sort_keys=True, default=str).encode(), digest_size=16).hexdigest()


def reading_dtype(parts: Sequence[Rows]) -> np.dtype[Any]:
    """float32 where it holds every value of these dtypes exactly, else float64.

    Raises InputError where not numeric.
    """
    for part in parts:
        kind = part.dtype.kind
        if kind not in "biuf":
            cure = _DTYPE_CURES.get(kind, "convert it to numbers, or use it as a label")
            raise InputError(f"{part.where}: expected real numbers, found dtype {part.dtype}; {cure}")
    fits = all(np.can_cast(part.dtype, np.float32, "safe") for part in parts)
    return np.dtype(np.float32 if fits else np.float64)


def check_matrix(rows: Rows) -> None:
    """Raises InputError unless the array is two-dimensional with at least one column."""
    n_dims = len(rows.shape)
    if n_dims != 2:
        cure = (
            "one feature per row is x.reshape(-1, 1)"
            if n_dims < 2
            else "flatten each sample to one row: x.reshape(len(x), -1)"
        )
        raise InputError(f"{rows.where}: expected a 2-D array of (rows, features), found shape {rows.shape}; {cure}")
    if rows.shape[1] == 0:
        raise InputError(
            f"{rows.where}: expected at least one column, found shape {rows.shape}; check how the file was written"
        )


def check_range(start: int, stop: int, n_rows: int) -> None:
    """Raises ValueError unless rows [start, stop) lie inside the input: a mistake of the caller, not of the "
    "input."""
    if not 0 <= start <= stop <= n_rows:
        raise ValueError(f"rows [{start}, {stop}) asked of an input of {n_rows} rows")


def check_columns(columns: Sequence[int] | None, n_features: int, where: str) -> list[int] | None:
    """The column numbers as a list, None for all.

    Raises InputError where one is out of range, repeated or not whole.
    """
    if columns is None:
        return None
    chosen = list(columns)
    bad = [c for c in chosen if type(c) is not int or not 0 <= c < n_features]
    if bad or not chosen:
        found = f"found {bad[:5]}" if bad else "found an empty list"
        raise InputError(
            f"{where}: input.columns must be whole numbers from 0 to {n_features - 1}, {found}; leave the "
            "key out for all"
        )
    if len(set(chosen)) < len(chosen):
        raise InputError(f"{where}: input.columns names a column twice: {chosen}; name each once")
    return chosen
