"""The manifests of each overlay, for the tests of k8s/."""

import pytest

from tests.support.manifest_parts import by_name
from tests.support.manifest_schemas import OVERLAYS


@pytest.fixture(params=OVERLAYS)
def objects(request):
    return by_name(f"overlays/{request.param}")
