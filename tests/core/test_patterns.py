"""Patterns: the same paths as `glob` finds, each once, in a bounded part of the disk."""

import glob
import os

import pytest

from lle.core import patterns
from lle.core.errors import InputError
from lle.core.patterns import matches
from tests.support.commands import refused, write_config


@pytest.fixture
def tree(tmp_path, monkeypatch):
    for name in ("a/x.npy", "a/b/y.npy", "a/b/c/z.npy", "a/.hidden/w.npy", "a/.v.npy", "d/[1]/u.npy"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    "pattern",
    [
        "a/**/*.npy",
        "**/*.npy",
        "**/b/**/*.npy",
        "**/c/*",
        "**/**/z.npy",
        "*/**/z.npy",
        "a/x.npy",
        "a/*",
        "**/[[]1]/*",
        "none/**/x",
        "**none",
    ],
)
def test_paths_are_those_of_glob(tree, pattern):
    for given in (pattern, str(tree / pattern)):
        assert matches(given) == sorted(set(glob.glob(given, recursive=True)))


def test_a_pattern_that_ends_with_folders_names_what_is_in_them(tree):
    assert matches(f"{tree}/a/**") == sorted(glob.glob(f"{tree}/a/**", recursive=True))[1:]  # without a itself
    assert matches("a/**/") == glob.glob("a/**/", recursive=True)


def test_a_file_is_found_once_though_links_lead_to_its_folder_again(tree):
    (tree / "a/b/up").symlink_to("..")
    (tree / "a/again").symlink_to("b")
    assert [os.path.basename(path) for path in matches(str(tree / "**/*.npy"))].count("z.npy") == 1
    assert len(matches("a/**/z.npy")) == 1


def test_folders_come_before_links_to_them(tree):
    """The paths, and so the order of rows, are those of the folders on every file system."""
    (tree / "a/link").symlink_to("../train")
    (tree / "early").symlink_to("train")
    (tree / "train").mkdir()
    (tree / "train/t.npy").touch()
    assert matches(str(tree / "**/t.npy")) == [str(tree / "train/t.npy")]


def test_a_pattern_that_searches_too_much_is_refused(tree, monkeypatch, tmp_path):
    monkeypatch.setattr(patterns, "MAX_ENTRIES", 5)
    with pytest.raises(InputError, match=r"searches more than 5 files and folders below '.*/'; name a folder closer"):
        matches(f"{tree}/**/none.npy")
    config = write_config(tmp_path, input={"kind": "npy", "path": f"{tree}/**/*.npy"})
    assert "searches more than 5" in refused(2, "validate", config)


@pytest.mark.skipif(not os.path.exists("/proc/self/mem"), reason="needs /proc")
@pytest.mark.parametrize("kind", ["npy", "idx", "csv", "parquet"])
def test_files_that_the_kernel_makes_are_no_data(tmp_path, kind):
    config = write_config(tmp_path, input={"kind": kind, "path": "/proc/self/mem"})
    assert "which the kernel generates; name another file" in refused(2, "validate", config)
