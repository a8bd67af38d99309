"""Folders that are not stores of this program are refused with their content, and not changed."""

import os
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import zarr

from lle.api.open_run import open_run
from lle.core.errors import ConfigError, StoreError
from lle.jobs.status import status_of
from lle.storage.array_specs import FORMAT_VERSION
from lle.storage.store import Store
from lle.storage.versions import reading
from tests.support.stored import files_below


def some_files(path: Path) -> None:
    (path / "thesis").mkdir(parents=True)
    (path / "thesis" / "chapter1.txt").write_text("years of work")


def other_group(path: Path) -> None:
    zarr.open_group(str(path), mode="w", attributes={"title": "of another program"})


def old_group(path: Path) -> None:
    zarr.open_group(str(path), mode="w", zarr_format=2)


def lone_array(path: Path) -> None:
    zarr.create_array(str(path), data=np.arange(3.0))


def other_torn_group(path: Path) -> None:
    path.mkdir()
    (path / "zarr.json").write_text('{"attributes": ')


def _within(open_place, url: str) -> None:
    with open_place(url):
        pass


def one_file(path: Path) -> None:
    path.write_text("not a folder")


class TestForeignPlaces:
    @pytest.mark.parametrize("make", [some_files, other_group, old_group, lone_array, other_torn_group])
    def test_foreign_places_are_refused_and_not_changed(self, tmp_path, make):
        place = tmp_path / "place"
        make(place)
        files = files_below(place)
        with pytest.raises(ConfigError, match=r"choose another output\.store") as caught:
            Store(str(place)).is_run()
        assert str(place) in str(caught.value)
        assert files_below(place) == files

    @pytest.mark.parametrize("make", [some_files, other_group, old_group, lone_array, other_torn_group])
    @pytest.mark.parametrize("name", ["place", "information"])
    def test_fresh_does_not_erase_foreign_places(self, tmp_path, make, name):
        make(tmp_path / name)
        with pytest.raises(ConfigError):
            Store(str(tmp_path / name)).may_erase()

    @pytest.mark.parametrize("name", ["inner", "a/b", "fit/inner"])
    @pytest.mark.parametrize("make", [other_group, old_group, lone_array])
    def test_places_inside_other_zarr_data_are_refused(self, tmp_path, make, name):
        make(tmp_path / "outer.zarr")
        with pytest.raises(ConfigError, match=r"found a place inside the Zarr data of .*outer\.zarr; choose another"):
            Store(str(tmp_path / "outer.zarr" / name)).is_run()
        assert not Store(str(tmp_path / "outer.zarr" / ".." / name)).is_run()
        assert not Store(str(tmp_path / "outer.zarr" / "fit")).is_run()  # of a run with input.fit_sample

    @pytest.mark.parametrize(
        ("make", "content"),
        [
            (some_files, r"other files: thesis/;"),
            (other_group, r"zarr data of another program: zarr\.json;"),
            (other_torn_group, r"other files: zarr\.json;"),
            (one_file, "a file, not a folder;"),
            (lambda path: path.mkdir(), "nothing;"),
            (lambda path: None, "nothing;"),
        ],
    )
    def test_reading_a_foreign_place_names_what_it_holds(self, tmp_path, make, content):
        make(tmp_path / "place")
        for read in (status_of, partial(_within, reading), open_run):
            with pytest.raises(ConfigError, match=f"Expected the store of a run, found {content}") as caught:
                read(str(tmp_path / "place"))
            assert "no run has been started there" in str(caught.value)
            assert "choose another" not in str(caught.value)

    def test_error_names_the_first_few_of_many_files(self, tmp_path):
        for number in range(9):
            (tmp_path / f"{number}.csv").write_text("1")
        with pytest.raises(
            ConfigError, match=r"other files: 0\.csv, 1\.csv, 2\.csv, 3\.csv, 4\.csv, \.\.\. \(9 in all\);"
        ):
            status_of(str(tmp_path))

    def test_reading_another_format_version_gives_no_advice_to_move_the_store(self, store):
        zarr.open_group(store.url, mode="a").attrs["lle_format"] = FORMAT_VERSION + 1
        with pytest.raises(
            ConfigError, match=f"format {FORMAT_VERSION}, found store format {FORMAT_VERSION + 1};"
        ) as caught:
            status_of(store.url)
        assert "another output.store" not in str(caught.value)

    def test_fresh_may_erase_runs_of_any_version(self, store, tmp_path):
        assert store.may_erase()
        zarr.open_group(store.url, mode="a").attrs["lle_format"] = FORMAT_VERSION + 1
        assert store.may_erase()
        assert not Store(str(tmp_path / "nothing")).may_erase()

    @pytest.mark.parametrize("name", ["place", "place/run.zarr"])
    def test_file_at_the_path_of_the_store_is_a_config_error(self, tmp_path, name):
        one_file(tmp_path / "place")
        store = Store(str(tmp_path / name))
        with pytest.raises(StoreError, match="path cannot be used") as caught:
            store.create_group({})
        assert caught.value.exit_code == 2
        with pytest.raises(StoreError, match="path cannot be used") as caught:
            store.objects.create("_run/lock.json", b"{}")
        assert caught.value.exit_code == 2
        with pytest.raises(ConfigError, match="no run has been started there"):
            status_of(store.url)
        assert (tmp_path / "place").read_text() == "not a folder"

    @pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write everywhere")
    def test_missing_write_permission_is_reported(self, tmp_path):
        (tmp_path / "sealed").mkdir(mode=0o500)
        with pytest.raises(StoreError, match="path cannot be used") as caught:
            Store(str(tmp_path / "sealed" / "run.zarr")).create_group({})
        assert caught.value.exit_code == 2
