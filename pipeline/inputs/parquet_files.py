"""Reader of Parquet tables by row group, and of Arrow (Feather) files by record batch."""

from collections.abc import Collection, Sequence
from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ..core.errors import InputError
from ..core.stage_caches import kept_in_stage
from ..storage.bundles import Array
from .base import Source, Stamp
from .column_names import TableColumns, choose_columns
from .damage import reading
from .files import ColumnRows, PathText, find_files, open_file, path_or_file
from .stacked_files import TableSource, shares_of

PARQUET = "a Parquet file"
ARROW = (".arrow", ".feather")
ARROW_BYTES = 1 << 20  # per request of an Arrow file behind a URL
BUNCH_BYTES = 1 << 25  # decoded bytes of a row group's columns that are read together
WIDEST_NUMBER = 32  # bytes of a decimal with 76 digits
LABEL_BYTES = 160  # memory per text: Arrow's copy, a Python object, and the pointer to it


def open_parquet(
    path: PathText, columns: Sequence[str] | None = None, label: str | None = None, id_column: str | None = None
) -> Source:
    """The named columns of Parquet or Arrow files, or all numeric ones but the label and the id; labels from a column.

    Raises InputError.
    """
    stamps = find_files(path, "path")
    roles = choose_columns(parquet_tables(stamps), columns, label, id_column)
    return ParquetSource(stamps, roles)


def parquet_tables(stamps: Sequence[Stamp]) -> list[TableColumns]:
    tables = []
    for stamp in stamps:
        schema = _outline(stamp).schema
        other_types = {field.name: name for field in schema if (name := _type_name(field.type))}
        row_index = (schema.pandas_metadata or {}).get("index_columns", [])
        index_names = [name for name in row_index if isinstance(name, str)]
        tables.append(TableColumns(stamp.path, schema.names, other_types, index_names))
    return tables


class ParquetRows(ColumnRows):
    def __init__(self, stamp: Stamp, columns: tuple[str, ...], label: str | None = None) -> None:
        super().__init__(stamp, columns, label)
        schema, self._starts = _outline(stamp)
        if label is None:
            self.shape = (self._starts[-1], len(columns))
            self.dtype = _common_dtype([schema.field(name).type for name in columns])
        else:
            self.shape, self.dtype = (self._starts[-1],), _label_dtype(schema.field(label).type, self.where)

    def bytes_beside(self, n_rows: int) -> int:
        """The cached numbers of the largest row group, and three copies of a bunch of its columns.

        The copies are the bytes in the file, the decoded columns, and one column converted to another type.
        """
        rows = int(np.diff(self._starts).max(initial=0))
        if self._label is not None:
            return rows * LABEL_BYTES
        bunch = max(BUNCH_BYTES, rows * WIDEST_NUMBER)
        return rows * len(self._columns) * self.dtype.itemsize + 3 * bunch

    def read(self, start: int, stop: int) -> Array:
        """Rows [start, stop) from the row groups that hold them; the last group read stays cached."""
        blocks = [self._rows_of_group(*share) for share in shares_of(self._starts, start, stop)]
        return np.concatenate(blocks) if blocks else np.empty((0, *self.shape[1:]), self.dtype)

    def _rows_of_group(self, group: int, low: int, high: int) -> Array:
        if self._label is None:
            return _numbers_of_group(self._stamp, group, self._columns, self.dtype)[low:high]
        group_column = _columns_of_group(self._stamp, group, (self._label,)).column(0)
        column = group_column.slice(low, high - low)
        if self.dtype.kind == "O":
            return np.asarray(column.cast(pa.string()).fill_null("").to_numpy(zero_copy_only=False))
        # Decided for the whole group: float64 rounds numbers above 2**53, and a label must not depend on the block.
        kind = pa.float64() if group_column.null_count else pa.from_numpy_dtype(self.dtype)
        return np.asarray(column.cast(kind, safe=False).to_numpy())


class ParquetSource(TableSource):
    rows_of = ParquetRows

    def column_types(self, names: Sequence[str]) -> dict[str, pa.DataType]:
        """The narrowest types, without dictionaries, that hold the columns of every file; text if no other does."""
        for name in names:
            if name not in self._types:
                schemas = [_outline(stamp).schema for stamp in self._stamps]
                kinds = [_of_entries(schema.field(name).type) for schema in schemas if name in schema.names]
                self._types[name] = _common_type(dict.fromkeys(kinds))
        return {name: self._types[name] for name in names}

    @cached_property
    def _types(self) -> dict[str, pa.DataType]:
        return {}

    def _columns_of_file(self, names: Sequence[str], number: int, low: int, high: int) -> pa.Table:
        """The columns of the rows, null where the file lacks one; the last row group read stays cached."""
        stamp, types = self._stamps[number], self.column_types(names)
        outline = _outline(stamp)
        stored = tuple(name for name in names if name in outline.schema.names)
        tables = [
            _columns_of_group(stamp, group, stored).slice(first, end - first)
            for group, first, end in shares_of(outline.starts, low, high)
        ]
        columns = {name: pa.nulls(high - low, kind) for name, kind in types.items()}
        with reading(stamp.path, PARQUET):
            table = pa.concat_tables(tables)
        for name in stored:
            try:
                columns[name] = table.column(name).cast(types[name])
            except pa.ArrowInvalid as error:
                raise InputError(
                    f"{stamp.path}, column {name!r}: its {table.schema.field(name).type} does not fit the "
                    f"{types[name]} of another file ({error}); write one type in all files"
                ) from error
        return pa.table(columns)


class Outline(NamedTuple):
    """The part of a footer that every task needs: the columns, the first row of each row group, and the end."""

    schema: pa.Schema
    starts: list[int]


@lru_cache(maxsize=1 << 16)
def _outline(stamp: Stamp) -> Outline:
    if stamp.path.lower().endswith(ARROW):
        with reading(stamp.path, "an Arrow file"), _open_arrow(stamp) as file:
            batches = [file.get_batch(number).num_rows for number in range(file.num_record_batches)]
            return Outline(file.schema, np.cumsum([0, *batches]).tolist())
    footer = _footer(stamp)
    sizes = [footer.row_group(group).num_rows for group in range(footer.num_row_groups)]
    with reading(stamp.path, PARQUET):
        return Outline(footer.schema.to_arrow_schema(), np.cumsum([0, *sizes]).tolist())


# Footers of wide tables take megabytes, so only a few are cached.
@lru_cache(maxsize=256)
def _footer(stamp: Stamp) -> pq.FileMetaData:
    with reading(stamp.path, PARQUET):
        return pq.read_metadata(path_or_file(stamp))


# Each of these keeps one row group, which can be large. Two functions: reads of numbers and labels alternate.
@kept_in_stage
def _numbers_of_group(stamp: Stamp, group: int, columns: tuple[str, ...], dtype: np.dtype[np.generic]) -> Array:
    first, end = _outline(stamp).starts[group : group + 2]
    numbers = np.empty((end - first, len(columns)), dtype)
    n_columns = max(1, BUNCH_BYTES // (8 * max(1, end - first)))
    for start in range(0, len(columns), n_columns):
        bunch = columns[start : start + n_columns]
        table = _read_group(stamp, group, list(bunch))
        for position, name in enumerate(bunch, start):
            # Missing entries become NaN, as any other invalid number.
            numbers[:, position] = table.column(name).cast(pa.from_numpy_dtype(dtype), safe=False).to_numpy()
        del table
        pa.default_memory_pool().release_unused()
    return numbers


@kept_in_stage
def _columns_of_group(stamp: Stamp, group: int, names: tuple[str, ...]) -> pa.Table:
    return _read_group(stamp, group, list(names)).select(list(names))


def _read_group(stamp: Stamp, group: int, columns: list[str]) -> pa.Table:
    if stamp.path.lower().endswith(ARROW):
        with reading(stamp.path, "an Arrow file"), _open_arrow(stamp) as file:
            return pa.Table.from_batches([file.get_batch(group)]).select(columns)
    # pre_buffer fetches many columns ahead of decoding: each remote read is a request.
    options = {"metadata": _footer(stamp), "pre_buffer": stamp.is_remote}
    with reading(stamp.path, PARQUET), pq.ParquetFile(path_or_file(stamp), **options) as file:
        return file.read_row_group(group, columns=columns, use_threads=False)


def _open_arrow(stamp: Stamp) -> pa.ipc.RecordBatchFileReader:
    return pa.ipc.open_file(open_file(stamp, ARROW_BYTES) if stamp.is_remote else pa.memory_map(stamp.path))


def _of_entries(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def _common_type(kinds: Collection[pa.DataType]) -> pa.DataType:
    try:
        return pa.unify_schemas([pa.schema({"": kind}) for kind in kinds], promote_options="permissive").field("").type
    except (pa.ArrowTypeError, pa.ArrowInvalid):
        return pa.string()


def _type_name(kind: pa.DataType) -> str:
    """The type of a column without numbers, for people; empty for numbers."""
    numbers, texts = ("integer", "floating", "boolean", "decimal"), ("string", "large_string", "string_view")
    if any(getattr(pa.types, f"is_{name}")(kind) for name in numbers):
        return ""
    if any(getattr(pa.types, f"is_{name}")(_of_entries(kind)) for name in texts):
        return "text"
    is_list = pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    if is_list and not _type_name(kind.value_type):
        return f"{kind}; to embed it, numpy.save('x.npy', numpy.stack(pandas.read_parquet(path)[name]))"
    return "no values" if pa.types.is_null(kind) else str(kind)


def _common_dtype(kinds: Sequence[pa.DataType]) -> np.dtype[np.generic]:
    fits = (not pa.types.is_decimal(kind) and np.can_cast(kind.to_pandas_dtype(), np.float32, "safe") for kind in kinds)
    return np.dtype(np.float32 if all(fits) else np.float64)


def _label_dtype(kind: pa.DataType, where: str) -> np.dtype[np.generic]:
    entries = _of_entries(kind)
    name = _type_name(entries)
    if name not in {"", "text"}:
        raise InputError(
            f"{where}: expected a label of numbers or text, found the type {entries}; convert it, or choose another"
        )
    is_real = pa.types.is_decimal(entries) or pa.types.is_floating(entries)
    number = np.float64 if is_real else np.uint64 if pa.types.is_uint64(entries) else np.int64
    return np.dtype(object if name else number)
