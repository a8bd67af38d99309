"""A store with an empty run."""

import pytest

from lle.storage.store import Store


@pytest.fixture
def store(tmp_path):
    store = Store(str(tmp_path / "run.zarr"))
    store.create_group({"config": {"a": 1}})
    return store
