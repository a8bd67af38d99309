"""Propose the role of each column of a table: feature, label or id. The user checks the proposal.

A table of up to LOOKED_AT numbers is read as a whole, of a larger one the first, middle and last rows.
"""

import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from itertools import chain
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..core.arrays import Bools
from ..storage.bundles import Array
from .base import Source
from .column_names import MISSING_WORDS
from .propose_scale import family_of, propose_scale, word_counts
from .strange_values import further_far_values
from .suspect_columns import (
    CODE_NAME,
    EXACT,
    ID_NAME,
    MAX_CODES,
    NUMBERING,
    Look,
    beside_curve,
    is_named,
    look_by_name,
    read_windows,
    sample_windows,
    suspect_columns,
)

LOOKED_AT = 1 << 24
MAX_CATEGORIES, MAX_CLASSES = 50, 10
"""Categories of a label of text, and of one of whole numbers without a typical name: more may be a measurement."""
MIN_REPEATS = 5
"""A label or a code has on average at least this number of rows for each of its values."""
MAX_MISSING, MAX_INCOMPLETE = 0.05, 0.1
"""A column without a value in more than the first share of the rows is left out, because each such row gets no
coordinates; not if the table then holds fewer entries, and all such rows together are below the second share."""
LONGEST_ID = 64
TIME = (
    r"^(\d{4}[-/.]\d\d?[-/.]\d\d?|(19|20)\d\d-\d\d|\d\d?[-/.](\d\d?|[A-Za-z]{3})[-/.]\d{4}"
    r"|(\d+ days )?\d\d?:\d\d)([ T:]|$)"
)
"""The beginning of a date, a month, a clock time or a duration."""
SPACE = r"[\s\x{a0}\x{2009}\x{202f}]"  # Arrow's \s is ASCII only
NUMBER = rf"[-+]?((0|[1-9][\d,]*|[1-9]\d{{0,2}}(({SPACE}\d{{3}})+|(\.\d{{3}})+|(['’]\d{{3}})+))([.,]\d+)?|[.,]\d+)"
SIGNED = rf"^\s*[-+]?([$€£¥₹]{SPACE}?)?{NUMBER}({SPACE}?[%‰$€£¥₹°]|{SPACE}[A-Za-zµ°/²³%][A-Za-zµ°/²³0-9]{{0,4}})?\s*$"
"""Numbers with separators of thousands, a sign of a currency, a percent sign or a unit."""
PLAIN = r"^\s*[-+]?\d+([.]\d+)?\s*$"
SIGNED_SHARE = 0.9
"""A text holds numbers if more than this share of it are SIGNED, and more than the other share of it are not PLAIN."""
MANY_FLAGS = 4
"""If columns with two values are more than this many times the others, they are the data, as in fingerprints."""
LIKELY_LABEL = re.compile(r"(is|has)_.*|.*(class|label|target|outcome|category|species|type|group|status).*", re.I)
LABEL_NAME = re.compile(
    r"labels?|class(es)?|targets?|y|category|categories|species|clusters?|leiden|louvain|group|(cell_?)?type", re.I
)

NO_CLASS = re.compile(
    r"sex|gender|split|fold|mon(th)?|mnth|w(eek_?)?day|day|(.*[_\s.-])?(first|middle|last|given|family)[_\s.-]?name",
    re.I,
)
"""Names of texts that are a label only if there is no other but persons: they seldom say what a table is about."""
CODE_NAMES = (
    CODE_NAME,
    LABEL_NAME,
    ID_NAME,
    NUMBERING,
    re.compile(r"time|period|visit|wave|round|session|trial|treat(ment)?|trt|rep(licate)?|block", re.I),
)
"""Names of codes of few whole numbers: those of any number of values, and parts of the design of a study."""


class Column(NamedTuple):
    """Properties of one column in the rows looked at. `distinct` ignores missing entries.

    Text with few categories and whole numbers with few values can be labels. `problem` says why numbers are no
    measurements, or that a text holds numbers.
    """

    name: str
    is_text: bool
    distinct: int
    missing: int
    is_id: bool
    can_be_label: bool
    problem: str = ""


class Roles(NamedTuple):
    """Proposed roles.

    `left_out` has the reason for each numeric column that is no feature, and for each text that holds numbers;
    `other_labels` are columns with few values besides the label, likely labels first and those without a value in
    most rows last, and `few_values` features with few whole numbers. `missing` are the rows without a number for
    each feature that has such rows, `incomplete` the number of all such rows, `complete` the share of the others,
    `different` the number of different complete rows (None if many), and `where` the rows looked at. `fillable`
    counts the columns that are left out for gaps, but have a value in at least half of the rows, and `far` has what
    `further_far_values` says of features.
    """

    features: tuple[str, ...]
    label: Column | None
    id: Column | None
    left_out: Mapping[str, str]
    other_labels: tuple[str, ...]
    few_values: tuple[str, ...]
    missing: Mapping[str, int]
    incomplete: int
    complete: float
    different: int | None
    where: str
    scale: tuple[str, str]
    fillable: int
    far: Mapping[str, str]


def propose_roles(source: Source, text: Sequence[str]) -> Roles:
    """The roles of the columns of a table that was opened without label and id; `text` names those that hold text.

    id: a column with a different whole number or text in each row, rather text. label: text with few categories, or
    whole numbers with few values if its name is typical for a label, or if by `_label` no other column can be one.
    Beside numbers x and z, a number y is a coordinate. Columns with many missing values, with one or two values, and
    codes, ids and times are left out; not if the table has counts of words. Raises InputError.
    """
    columns, numbers, where = _read_columns(source, text)
    ids = [column for column in columns if column.is_id]
    chosen_id = min(ids, key=lambda column: (not is_named(column.name, ID_NAME), not column.is_text), default=None)
    labels = [column for column in columns if column.can_be_label and column is not chosen_id]
    measured = [column for column in columns if not column.is_text and not column.problem]
    axes = {column.name.lower() for column in columns if not column.is_text} >= {"x", "y", "z"}
    candidates = [column for column in labels if column.is_text or column.name.lower() != "y" or not axes]
    about = len(numbers), _pixel_families(columns), [*measured[:1], *measured[-1:]]
    words = word_counts([column.name for column in columns], numbers)  # a word can be named class or type
    label = _label([one for one in candidates if one.name not in words], *about) or _label(candidates, *about)
    special = {column.name for column in (chosen_id, label) if column is not None}
    rest = [column for column in columns if not column.is_text and column.name not in special]
    left_out = {column.name: column.problem for column in columns if column.problem and column.name not in special}
    positions = {column.name: position for position, column in enumerate(columns)}
    gaps = {column: ~np.isfinite(numbers[:, positions[column.name]]) for column in rest if not column.problem}
    gappy = _mostly_missing(gaps)
    left_out |= {column.name: f"{column.missing:,} of {where} have no value" for column in gappy}
    left_out |= beside_curve([column.name for column in rest if column.name not in left_out])
    left_out |= _codes([column for column in rest if column.name not in left_out and not words])
    left_out |= _constant(
        {column: numbers[:, positions[column.name]] for column in rest if column.name not in left_out}, where
    )
    features = [column for column in rest if column.name not in left_out]
    chosen = numbers[:, [positions[column.name] for column in features]]
    is_complete = np.isfinite(chosen).all(axis=1)
    others = [column for column in labels if column is not label]
    others.sort(
        key=lambda column: (
            2 * column.missing > len(numbers),
            LIKELY_LABEL.fullmatch(column.name) is None,
            column.name not in left_out,
        )
    )
    return Roles(
        tuple(column.name for column in features),
        label,
        chosen_id,
        left_out,
        tuple(column.name for column in others),
        tuple(column.name for column in features if column.can_be_label),
        {column.name: column.missing for column in features if column.missing},
        int((~is_complete).sum()),
        float(is_complete.mean()) if len(chosen) else 1.0,
        _different_rows(chosen[is_complete]) if len(chosen) == source.n_rows else None,
        where,
        propose_scale(chosen, [column.name for column in features]),
        sum(2 * column.missing <= len(numbers) for column in gappy),
        further_far_values(source, [column.name for column in features], chosen),
    )


def _read_columns(source: Source, text: Sequence[str]) -> tuple[list[Column], Array, str]:
    """(columns, the features before those of text; values of the features; the rows looked at, in words)."""
    assert source.roles is not None
    windows = rows_to_look_at(source)
    numbers = read_windows(source, windows)
    where = f"{len(numbers):,} " + ("rows" if len(numbers) == source.n_rows else "sampled rows")
    suspects = suspect_columns(source)
    names = source.roles.features
    columns = [_numeric(name, numbers[:, i], suspects.get(name), where) for i, name in enumerate(names)]
    return [*_without_wrong_ids(source, columns), *_text_columns(source, text, windows)], numbers, where


def rows_to_look_at(source: Source) -> list[tuple[int, int]]:
    """All rows if they hold at most LOOKED_AT numbers, else `sample_windows`."""
    if 0 < source.n_rows * source.n_features <= LOOKED_AT:
        return [(0, source.n_rows)]
    return sample_windows(source)


def _different_rows(rows: Array) -> int | None:
    """The number of different rows; None if already the first ones hold more than MAX_CATEGORIES."""
    if rows.shape[1] and len(np.unique(rows[: 20 * MAX_CATEGORIES], axis=0)) > MAX_CATEGORIES:
        return None
    return len(np.unique(rows, axis=0))


def _numeric(name: str, values: Array, look: Look | None, where: str) -> Column:
    look = look or look_by_name(name, values)  # a file sorted by a code has few of its values in the few rows
    present = values[np.isfinite(values)]
    distinct = len(np.unique(present))
    is_integral = bool((present == np.rint(present)).all())
    is_code = is_integral and 2 <= distinct <= MAX_CODES and distinct * MIN_REPEATS <= len(present) and look is None
    if look is not None and look.is_id and distinct < len(values) and np.abs(present).max() < EXACT:
        # It differs in the few rows that `suspect_columns` reads.
        look = Look(f"an id: whole numbers, {distinct:,} different ones in {where}", False)
    missing, problem = len(values) - len(present), look.says if look is not None else ""
    if not distinct:
        problem = f"none of {where} has a value"
    elif distinct == 1 < len(values):
        problem = f"the same value in all {where}{' that have one' * bool(missing)}"
    return Column(name, False, distinct, missing, look is not None and look.is_id, is_code, problem)


def _mostly_missing(gaps: Mapping[Column, Bools]) -> list[Column]:
    """The columns to leave out, given the rows in which each has no value.

    Columns with few gaps are taken; then others, those with the fewest first, as long as few rows have a gap and the
    complete rows hold more entries: columns of one source often lack the same rows. Blank rows, as between the parts
    of a map, do not count.
    """
    order = sorted(gaps, key=lambda column: column.missing)
    if len(gaps) > 1:
        is_blank = np.logical_and.reduce([*gaps.values()])
        gaps = {column: gap[~is_blank] for column, gap in gaps.items()}
    incomplete, taken, most = np.zeros(len(next(iter(gaps.values()), ())), bool), 0, 0
    for number, column in enumerate(order, start=1):
        incomplete = incomplete | gaps[column]
        is_few, entries = gaps[column].sum() <= MAX_MISSING * len(incomplete), number * int((~incomplete).sum())
        if is_few or (incomplete.mean() < MAX_INCOMPLETE and entries > most):
            taken, most = number, entries
    return order[taken:]


def _codes(columns: Sequence[Column]) -> dict[str, str]:
    """Columns to leave out: flags, and codes by their name; none if fewer than two others would be left.

    Other whole numbers with few values are counts, marks and answers on a scale. If names differ only in a number, as
    those of pixels, and one of the columns has more than two values, all are kept. So are many flags.
    """
    families = {family_of(column.name) for column in columns if not column.can_be_label or column.distinct > 2}
    codes = {
        column.name: f"a code by its name: whole numbers with {column.distinct} values"
        for column in columns
        if column.can_be_label and column.distinct > 2 and is_named(column.name, *CODE_NAMES)
    }
    flags = {
        column.name: "two values"
        for column in columns
        if column.can_be_label and column.distinct == 2 and family_of(column.name) not in families
    }
    n_others = len(columns) - len(codes) - len(flags)
    if len(flags) > MANY_FLAGS * n_others:
        return codes if n_others + len(flags) >= 2 else {}
    return codes | flags if n_others >= 2 else {}


def _constant(features: Mapping[Column, Array], where: str) -> dict[str, str]:
    """Columns to leave out because they have one value in the rows without gaps, which are the rows of a run."""
    is_complete = np.logical_and.reduce([np.isfinite(values) for values in features.values()])
    n_complete = int(is_complete.sum())
    if n_complete < 2 or is_complete.all():
        return {}
    why = f"the same value in the {n_complete:,} of {where} that have no gaps"
    same = {column.name: why for column, values in features.items() if np.ptp(values[is_complete]) == 0}
    return same if len(same) < len(features) else {}


def _without_wrong_ids(source: Source, columns: Sequence[Column]) -> list[Column]:
    """The columns with `is_id` except floating-point numbers: those of Parquet cannot be ids.

    Whole numbers with leading zeros are text.
    """
    ids = [column.name for column in columns if column.is_id]
    kinds = source.column_types(ids) if ids else {}
    right = {name for name, kind in kinds.items() if not pa.types.is_floating(kind)}
    return [column._replace(is_id=column.name in right) for column in columns]


def _text_columns(source: Source, names: Sequence[str], windows: Sequence[tuple[int, int]]) -> list[Column]:
    if not names or not windows:
        return []
    table = pa.concat_tables([source.read_columns(names, *window) for window in windows])
    return [_text(name, table.column(name)) for name in names]


def _text(name: str, values: pa.ChunkedArray) -> Column:
    present = pc.drop_null(values.cast(pa.string()))
    present = present.filter(pc.not_equal(present, ""))
    distinct, n = pc.count_distinct(present).as_py(), len(present)
    problem = _problem(present)
    is_missing = pc.is_in(pc.utf8_trim_whitespace(present), value_set=pa.array(sorted(MISSING_WORDS)))
    is_time = pc.or_(pc.match_substring_regex(present, TIME), is_missing)
    is_word = not problem and not pc.all(is_time).as_py()
    is_id = is_word and distinct == n == len(values) > 1 and pc.max(pc.utf8_length(present)).as_py() <= LONGEST_ID
    is_category = is_word and 2 <= distinct <= MAX_CATEGORIES and distinct * MIN_REPEATS <= n
    return Column(name, True, distinct, len(values) - n, is_id, is_category, problem)


def _problem(entries: pa.ChunkedArray) -> str:
    """Says that a column of text holds numbers with a sign or unit; empty if it holds others."""
    numbers = entries.filter(pc.match_substring_regex(entries, SIGNED))
    signed = numbers.filter(pc.invert(pc.match_substring_regex(numbers, PLAIN)))
    if len(numbers) <= SIGNED_SHARE * len(entries) or len(signed) <= (1 - SIGNED_SHARE) * len(entries):
        return ""
    return f"text that holds numbers, such as {str(signed[0])!r}; write them without signs, units and separators"


def _pixel_families(columns: Sequence[Column]) -> set[str]:
    """Families of several columns of which one has many values; answers of a survey have few."""
    n_columns = Counter(family_of(column.name) for column in columns if not column.is_text)
    many = {family_of(column.name) for column in columns if not column.is_text and column.distinct > MAX_CLASSES}
    return {family for family in many if n_columns[family] > 1}


def _label(
    candidates: Sequence[Column], n_rows: int, pixels: Collection[str], ends: Collection[Column]
) -> Column | None:
    """A column named as a label, then text, then numbers if they are the only ones with few values.

    Numbers without such a name have at most MAX_CLASSES values: others may be measurements. So may counts, unless they
    have two values, a likely name, or the first or last place among the numbers that are no ids (``ends``). Columns
    of the families ``pixels`` are no labels and do not count. Columns without a value in most rows come after the other
    named ones and texts.
    """
    text = [column for column in candidates if column.is_text]
    text.sort(key=lambda column: is_named(column.name, ID_NAME, NUMBERING, NO_CLASS))
    numbered = [column for column in candidates if not column.is_text]
    named = [column for column in text if LABEL_NAME.fullmatch(column.name)]
    named += [column for column in numbered if LABEL_NAME.fullmatch(column.name)]
    full = [[column for column in columns if 2 * column.missing <= n_rows] for columns in (named, text)]
    alone = [column for column in numbered if family_of(column.name) not in pixels]
    only = alone if len(alone) == 1 and alone[0].distinct <= MAX_CLASSES else []
    only = [column for column in only if column.distinct == 2 or column in ends or LIKELY_LABEL.fullmatch(column.name)]
    return next(chain(*full, named, text, only), None)
