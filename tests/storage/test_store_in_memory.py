"""The store in memory gives what a store on disk gives, and does not outlive its block."""

import numpy as np
import pytest
from scipy.sparse import random_array

from lle.core.errors import CorruptChunk, StoreError
from lle.storage.store import Store, block_of
from lle.storage.store_in_memory import memory_root
from tests.support.plans import planned

VALUES = np.random.default_rng(4).normal(size=(20, 3))
ROWS = random_array((8, 9), density=0.4, format="csr", rng=np.random.default_rng(5))


@pytest.fixture(params=["memory", "disk"])
def store(request, tmp_path):
    with memory_root() as url:
        store = Store(url if request.param == "memory" else str(tmp_path / "run.zarr"))
        store.create_group({"config": {"a": 1}})
        yield store


@pytest.fixture
def filled(store):
    store.create(planned("x", VALUES.shape, "float64", 8))
    store.write("x", 0, VALUES)
    return store


def test_group_is_a_run(store):
    assert Store(store.url).is_run()
    assert Store(store.url).attributes()["config"] == {"a": 1}


def test_layout_of_an_array(filled):
    array = filled.array("x")
    assert (array.shape, array.dtype, array.chunks, block_of(array)) == ((20, 3), np.dtype("float64"), (8, 3), 8)
    assert filled.holds(planned("x", (20, 3), "float64", 8))
    assert not filled.holds(planned("x", (20, 3), "float64", 4))
    assert not filled.holds(planned("y", (20, 3), "float64", 8))


def test_reads_and_gathers(filled):
    np.testing.assert_array_equal(Store(filled.url).read_all("x"), VALUES)
    np.testing.assert_array_equal(filled.read("x", 5, 19), VALUES[5:19])
    np.testing.assert_array_equal(filled.gather("x", np.array([0, 7, 8, 19])), VALUES[[0, 7, 8, 19]])


def test_values_are_converted_to_the_type_of_the_array(store):
    store.create(planned("i", (4,), "int32", 4))
    store.write("i", 0, np.arange(4))
    assert store.read_all("i").dtype == np.int32


def test_changes_of_what_was_written_or_read_do_not_reach_the_store(filled):
    values = VALUES[:8].copy()
    filled.write("x", 0, values)
    values[:] = 0
    filled.read("x", 0, 8)[:] = 0
    np.testing.assert_array_equal(filled.read_all("x"), VALUES)
    rows = ROWS.copy()
    filled.write_rows("m", 0, 0, rows)
    rows.data[:] = 0
    filled.read_rows("m", 0).data[:] = 0
    assert (filled.read_rows("m", 0) != ROWS).nnz == 0
    values = VALUES.copy()
    filled.write_bundle("b", values=values)
    values[:] = 0
    filled.read_bundle("b")["values"][:] = 0
    np.testing.assert_array_equal(filled.read_bundle("b")["values"], VALUES)


@pytest.mark.parametrize(
    "values",
    [
        VALUES,
        VALUES.T,
        VALUES[::2].T,
        np.array(3),
        np.array(["a", "bc"]),
        np.zeros((0, 3)),
        np.float32([np.nan, np.inf]),
    ],
)
def test_bundle_returns_arrays_of_the_same_type_and_memory_order(store, values):
    store.write_bundle("b", values=values)
    values_read = Store(store.url).read_bundle("b")["values"]
    np.testing.assert_array_equal(values_read, values)
    assert values_read.dtype == values.dtype
    is_fortran = values.flags.f_contiguous and not values.flags.c_contiguous
    assert values_read.flags.c_contiguous is not is_fortran
    with pytest.raises(CorruptChunk, match="missing"):
        store.read_bundle("c")


def test_appended_rows_follow_the_others(store):
    store.write_rows("m", 0, 0, ROWS[:5], chunk=4)  # several chunks of entries
    store.append_rows("m", 0, ROWS[5:])
    assert (store.read_rows("m", 0) != ROWS).nnz == 0


def test_block_that_was_not_written_is_an_error(store):
    store.create(planned("x", (20, 3), "float64", 8))
    store.write("x", 0, VALUES[:8])
    with pytest.raises(CorruptChunk) as caught:
        store.read("x", 0, 16)  # one missing block: several are read at once
    assert (caught.value.array, caught.value.chunk) == ("x", "1")
    with pytest.raises(StoreError):
        store.read_rows("m", 0)


def test_arrays_are_replaced_and_deleted(filled):
    filled.create(planned("x", (4,), "int64", 4))
    assert filled.array("x").shape == (4,)
    with pytest.raises(CorruptChunk):
        filled.read_all("x")
    filled.objects.delete("x")
    assert not filled.has_array("x")
    with pytest.raises(StoreError, match="has no array 'x'"):
        Store(filled.url).array("x")


def test_memory_is_released_at_the_end():
    with memory_root() as url:
        store = Store(url)
        store.put_json("x.json", {"x": 1})
    with pytest.raises(StoreError, match="was deleted, or belongs to another process"):
        Store(url)
