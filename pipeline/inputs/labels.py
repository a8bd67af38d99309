"""Labels as numbers: floats unchanged; text and small sets of integers as indices into a list of names."""

import json
import re
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

import numpy as np

from ..core.arrays import Float64
from ..core.errors import InputError
from ..storage.bundles import Array
from .base import Coding, LabelKind
from .column_names import PADDED_WORDS, is_missing_word, number_in

if TYPE_CHECKING:
    from .stacked_files import StackedRows

SCAN_ROWS = 1 << 18
MAX_INTEGER_CLASSES = 64
MAX_TEXT_CLASSES = 1000
SCANNED_TEXT_BYTES = 240  # memory per text of ten characters: an object, and two fixed-width copies
_CACHED_CODINGS = 32
_NUMBER = re.compile(r"[+-]?\d+(\.\d*)?([eE][+-]?\d+)?", re.ASCII)
_DIGITS = re.compile(r"(\d+(?:\.\d+)?)", re.ASCII)


_CODINGS: OrderedDict[str, Coding] = OrderedDict()


class Labels:
    """The labels of an input. Raises InputError unless there is one per row, and all are numbers or text.

    Floating-point labels are continuous if all files have them. Text is categorical unless every entry is a number or
    a word for a missing one; among other texts such words are classes. Integers are categorical if there are at most
    MAX_INTEGER_CLASSES different ones. The first use reads all labels, once per process.
    """

    def __init__(self, stack: "StackedRows", n_rows: int) -> None:
        self.stack = stack
        first = stack.parts[0]
        if stack.n_rows != n_rows:
            raise InputError(
                f"{first.where}: expected one label per row, {n_rows} in all, found {stack.n_rows}; give the "
                "labels of the same rows"
            )
        shape, kind = first.shape, first.dtype.kind
        if not 1 <= len(shape) <= 2 or 0 in shape[1:]:
            raise InputError(
                f"{first.where}: expected labels as a vector or as columns, found shape {shape}; reshape them"
            )
        self._is_text = kind in "USOT"
        if not self._is_text and kind not in "biuf":
            raise InputError(
                f"{first.where}: expected labels that are numbers or text, found dtype {first.dtype}; convert them"
            )
        self.width = shape[1] if len(shape) == 2 else 1
        if self._is_text and self.width > 1:
            raise InputError(f"{first.where}: expected one text label per row, found shape {shape}; choose one column")

    def bytes_beside(self, n_rows: int) -> int:
        """Extra bytes of reading n_rows labels and of the scan for their kind (SCAN_ROWS at a time, text copied)."""
        n_scanned = min(SCAN_ROWS, self.stack.n_rows)
        scanned = n_scanned * (SCANNED_TEXT_BYTES if self._is_text else 32)
        return scanned + self.stack.bytes_beside(max(n_rows, n_scanned))

    @property
    def kind(self) -> LabelKind:
        return self._coding().kind

    @property
    def names(self) -> tuple[str, ...] | None:
        return self._coding().names

    def read(self, start: int, stop: int) -> Float64:
        """(rows,) or (rows, width): values, or indices into `names`; NaN for a missing label."""
        coding = self._coding()
        result = np.empty((stop - start, self.width))
        for target, block in self.stack.pieces(start, stop):
            result[target] = self._encode(block, coding).reshape(-1, self.width)
        return result[:, 0] if self.width == 1 else result

    def _coding(self) -> Coding:
        kinds = {part.dtype.kind for part in self.stack.parts}
        if not self._is_text and (kinds == {"f"} or self.width > 1):
            return Coding("continuous")
        key = json.dumps([[part.where for part in self.stack.parts], self.stack.fingerprint()], sort_keys=True)
        if key not in _CODINGS:
            _CODINGS[key] = self._find_coding()
            while len(_CODINGS) > _CACHED_CODINGS:
                _CODINGS.popitem(last=False)
        return _CODINGS[key]

    def _find_coding(self) -> Coding:
        values = self._distinct(MAX_TEXT_CLASSES if self._is_text else MAX_INTEGER_CLASSES) - {""}
        number_of = {value: value for value in values}
        if self._is_text:
            number_of = {text: number_in(text) for text in values if not is_missing_word(text)}
        if number_of and None not in number_of.values():
            numbers = sorted(set(number_of.values()))
            if len(numbers) > MAX_INTEGER_CLASSES or not all(float(number).is_integer() for number in numbers):
                return Coding("continuous")
            codes = {value: numbers.index(number) for value, number in number_of.items()}
            return Coding("categorical", tuple(str(int(number)) for number in numbers), codes)
        if len(values) > MAX_TEXT_CLASSES:
            raise InputError(
                f"{self.stack.parts[0].where}: expected labels of at most {MAX_TEXT_CLASSES} different "
                f"texts, found more, such as {sorted(values)[:3]}; choose another label, or remove the key "
                "(labels only colour the picture)"
            )
        names = tuple(sorted(values, key=natural_order))
        return Coding("categorical", names, {name: code for code, name in enumerate(names)})

    def _distinct(self, limit: int) -> set[Any]:
        """The distinct labels; stops after more than `limit`. Missing numbers are left out; missing text is ""."""
        distinct: set[Any] = set()
        for start in range(0, self.stack.n_rows, SCAN_ROWS):
            for _, block in self.stack.pieces(start, min(start + SCAN_ROWS, self.stack.n_rows)):
                values = _as_text(block, self.stack.parts[0].where) if self._is_text else block[block == block]
                distinct.update(np.unique(values).tolist())
            if len(distinct) > limit:
                break
        return distinct

    def _encode(self, block: Array, coding: Coding) -> Float64:
        where = self.stack.parts[0].where
        values = _as_text(block, where) if self._is_text else block
        if coding.code_of is not None:
            unique, inverse = np.unique(values, return_inverse=True)
            codes = np.array([coding.code_of.get(value, np.nan) for value in unique.tolist()])
            return np.asarray(codes[inverse], np.float64)
        try:
            is_missing = np.isin(values, PADDED_WORDS) if self._is_text else False
            return np.asarray(np.where(is_missing, "nan", values) if self._is_text else values, np.float64)
        except ValueError as error:
            raise InputError(
                f"{where}: expected a number in every label, as in the first rows; {error}; correct the label"
            ) from error


def _as_text(block: Array, where: str) -> Array:
    try:
        # NumPy can cast its variable-width text to fixed width only through objects.
        text = np.strings.decode(block, "utf-8") if block.dtype.kind == "S" else block.astype(object).astype(str)
        np.strings.encode(text, "utf-8")  # no file can hold half of a surrogate pair
    except UnicodeError as error:
        raise InputError(f"{where}: expected labels in UTF-8, found other text ({error}); convert them") from error
    return text


def natural_order(name: str) -> tuple[bool, float, list[str | float], str]:
    """A key for `sorted`, for people: numbers by value, then texts, in which each group of digits counts as a number.

    >>> sorted(["class 10", "class 2", "10", "b", "-2", "9", "1.5"], key=natural_order)
    ['-2', '1.5', '9', '10', 'b', 'class 2', 'class 10']
    """
    if _NUMBER.fullmatch(name):
        return False, float(name), [], name
    parts = _DIGITS.split(name)  # text and digits in turns
    return True, 0.0, [float(part) if number % 2 else part for number, part in enumerate(parts)], name
