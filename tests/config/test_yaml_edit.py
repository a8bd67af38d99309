"""Changed values in a YAML text: the parsed result is the one asked for, and everything else of the text stays."""

import re
from pathlib import Path

import numpy as np
import pytest
import yaml

from lle.config.yaml_edit import NotEdited, changed, edited
from lle.config.yaml_io import parse

CONFIGS = sorted(Path("configs").glob("*.yaml"))
PROPOSAL = {
    "method": "ltsa",
    "eigensolver.n_components": 3,
    "neighbors.n_neighbors": 17,
    "weights.reg": 0.03,
    "output.store": "runs/other, with comma.zarr",
    "execution.cluster.kind": "serial",
}


def comments(text):
    """The comments of a text: what follows # outside of values, to the end of the line."""
    inside = np.zeros(len(text) + 1, bool)
    for token in yaml.scan(text):
        if isinstance(token, yaml.ScalarToken):
            inside[token.start_mark.index : token.end_mark.index] = True
    found, end = [], 0
    for match in re.finditer("(?:(?<=\\s)|^)#", text):
        if match.start() >= end and not inside[match.start()]:
            end = (text + "\n").index("\n", match.start())
            found.append(text[match.start() : end])
    return found


def check(text, changes):
    new = edited(text, changes)
    assert parse(new) == changed(parse(text), changes)
    assert comments(new) == comments(text)
    return new


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_shipped_configs_keep_their_comments_and_get_every_value(path):
    text = path.read_text()
    new = check(text, PROPOSAL)
    unchanged = [line for line in text.splitlines() if line in new.splitlines()]
    assert len(text.splitlines()) - len(unchanged) <= len(PROPOSAL)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("method: lle # m\n# end", "method: ltsa # m\n# end"),
        ("a: 1 # one\n\n# two\n", "a: 1 # one\n\n# two\nmethod: ltsa\n"),
        ("method:\na: 1", "method: ltsa\na: 1"),
        ("method: 'lle'\r\n# x\r\nb: 2\r\n", "method: ltsa\r\n# x\r\nb: 2\r\n"),
        ("# none\r\nb: 2", "# none\r\nb: 2\r\nmethod: ltsa\r\n"),
        ("{}", "{method: ltsa}"),
        ('{"b": 1} # x', '{method: ltsa, "b": 1} # x'),
    ],
)
def test_a_value_of_the_file(text, expected):
    assert check(text, {"method": "ltsa"}) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("s: # of s\n  # of b\n  b: 1 # one\n", "s: # of s\n  k: 5\n  # of b\n  b: 1 # one\n"),
        ("s: {b: 1} # x\n", "s: {k: 5, b: 1} # x\n"),
        ("s: {} # x\n", "s: {k: 5} # x\n"),
        ("s: # x\nb: 1\n", "s: {k: 5} # x\nb: 1\n"),
        ("s: null # x\n", "s: {k: 5} # x\n"),
        ("s:\n    k: # x\n    - 1\n    - 2 # two\n    b: 1\n", None),
        ("s: {\n  k: 3, # x\n  b: 1 }\n", None),
        ("s:\n  k: >\n    long\n    text\n  b: 1 # x\n", None),
        ("# x\nb: 1\n", "# x\nb: 1\ns:\n  k: 5\n"),
        ("s: {b: [1, # x\n 2]}\n", None),
        ("s:\n  c:\n    d: 1\n  # of k\n  k: 2 # two\n", None),
    ],
)
def test_a_value_of_a_section(text, expected):
    new = check(text, {"s.k": 5})
    assert expected is None or new == expected


@pytest.mark.parametrize(
    "value", ["a: b", "yes", "1e-3", "x # y", "", "a,b", "[", "ü", 1e-3, True, None, [1, "a, b"], {"k": "}"}]
)
def test_any_value_is_read_back(value):
    for text in ("s:\n  k: 1 # x\n", "s: {k: 1, b: 2} # x\n", "b: 2 # x\n"):
        check(text, {"s.k": value})


@pytest.mark.parametrize("text", ["n: &n 3\ns:\n  k: *n\n", "b: {<<: {k: 1}}\ns: {k: 1}\n..."])
def test_a_text_that_cannot_be_edited_is_refused(text):
    """A changed anchor would change its aliases, and nothing may follow the end of a document."""
    with pytest.raises(NotEdited):
        edited(text, {"s.k": 5, "u": 1})
