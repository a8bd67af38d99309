"""Words that stand for a missing number in text."""

from itertools import product

WORDS = frozenset({
    "", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN", "<NA>", "N/A", "NA",
    "NULL", "NaN", "None", "n/a", "nan", "null",
    "-", "--", "?", ".", "NAN", "NONE", "Null", "na", "none", "\\N",
})  # fmt: skip
"""Those of pandas.read_csv, then others that are no number. In a column of other texts they are texts like any."""

SHOWN = "NA, None, NULL, n/a, - and ?"
"""Some of them, for messages."""

PADDED = [" " * left + word + " " * right for word, left, right in product(sorted(WORDS), range(9), range(2))]
"""The words with spaces around them, as in files with aligned columns."""


def is_missing_word(text: str | bytes) -> bool:
    """Whether a text stands for a missing number.

    >>> is_missing_word(" ?"), is_missing_word(b"n/a"), is_missing_word("Norway")
    (True, True, False)
    """
    return (text if isinstance(text, str) else text.decode(errors="replace")).strip(" ") in WORDS
