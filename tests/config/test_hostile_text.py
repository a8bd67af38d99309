"""Configs that could stop or crash the loader: each is a config error, at once."""

import time
from itertools import pairwise

import pytest

from lle.config.load import load_config
from lle.core.credentials import find_secret, redact
from lle.core.errors import ConfigError, shortened

OUTPUT = "\noutput: {store: r.zarr}\n"
LETTERS = "abcdefghi"


def bomb(first: str, layer: str) -> str:
    """Nine short lines; every line names the one before nine times."""
    lines = [f"a: &a {first}"]
    lines += [f"{new}: &{new} {layer.format(', '.join([f'*{old}'] * 9))}" for old, new in pairwise(LETTERS)]
    return "\n".join(lines)


def source(parameters: str) -> str:
    return f"input: {{kind: synthetic, name: s_curve, {parameters}}}"


HOSTILE = {
    "alias_bomb": (bomb("[x, x, x, x, x, x, x, x, x]", "[{}]"), "each alias counted"),
    "merge_bomb": (bomb("{x: 1}", "{{<<: [{}]}}"), "each alias counted"),
    "cyclic_list": ("input: &a [*a]", "an alias refers to a value around it"),
    "cyclic_mapping": ("input: &a {kind: *a}", "an alias refers to a value around it"),
    "timestamp": ("input: {kind: npy, path: !!timestamp 6}", "form of its tag"),
    "bool": ("input: {kind: npy, path: !!bool 6}", "form of its tag"),
    "hex": (source(f"n_points: 0x{'f' * 4300}"), "more than 128 bits"),
    "digits": (source(f"n_points: {'9' * 4400}"), "4300 digits"),
    "many_points": (source("n_points: 999999999999999999"), "input.n_points"),
    "size": (f"{source('n_points: 90')}\nexecution: {{cluster: {{memory: {'9' * 400}GiB}}}}", "less than 8 EiB"),
    "nul": ('input: {kind: npy, path: "a\\0b"}', "U\\+0000 is not allowed"),
    "surrogate": ('input: {kind: npy, path: "a\\ud800b"}', "U\\+D800 is not allowed"),
    "many_values": (f"a: [{'x,' * 110_000}x]", "more than 100000 values"),
    "many_keys": ("".join(f"k{number}: v\n" for number in range(110_000)), "more than 100000 values"),
    "large": (f"a: {'x' * 50_000_000}", "at most 4 MiB"),
    "long_word": (f"method: {'l' * 400_000}\n{source('n_points: 90')}", "method"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_text_is_a_config_error_at_once(tmp_path, name):
    text, message = HOSTILE[name]
    (tmp_path / "c.yaml").write_text(text + OUTPUT)
    started = time.process_time()
    with pytest.raises(ConfigError, match=message) as caught:
        load_config(tmp_path / "c.yaml", ())
    assert time.process_time() - started < 10  # seconds or never without the limits
    assert len(str(caught.value)) < 2000


def test_a_device_as_config_is_not_read_to_its_end():
    with pytest.raises(ConfigError, match="at most 4 MiB"):
        load_config("/dev/zero", ())


def test_aliases_and_merged_sections_of_ordinary_size_are_read(tmp_path):
    (tmp_path / "c.yaml").write_text(
        "neighbors: &n {n_neighbors: 9}\ninput: {<<: {n_points: 90}, kind: synthetic, name: s_curve}" + OUTPUT
    )
    assert load_config(tmp_path / "c.yaml", ()).input.n_points == 90


LONG = [
    "token" * 40_000,
    "a" * 200_000,
    "a." * 100_000,
    "x://" + ":" * 200_000,
    "token " * 40_000,
    "secret" + " " * 200_000,
    "://" * 60_000,
    "https://" * 30_000,
]


@pytest.mark.parametrize("text", LONG, ids=[text[:8] for text in LONG])
def test_the_search_for_secrets_takes_linear_time(text):
    started = time.process_time()
    find_secret(text)
    redact(text)
    assert time.process_time() - started < 1


def test_long_words_are_shortened_and_others_are_not():
    assert shortened(f"x {'a' * 1000}: y") == f"x {'a' * 200}... (1001 characters) y"
    assert str(ConfigError("a" * 400)) == "a" * 400
    assert len(str(ConfigError("b" * 400_000))) < 300
