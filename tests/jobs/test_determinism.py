"""The same bytes for 1, 2 and 4 threads or processes, serial or distributed."""

import functools
from collections import Counter

import dask
import numpy as np
import pytest
from distributed import Client, LocalCluster

from lle.clusters.connect import connect
from lle.config.models import Cluster
from lle.core.machine import WORKER_PROFILE
from lle.engine.checkpoint import read_reports
from lle.search import cell_groups
from tests.benchmarks.faults import Job

pytestmark = [pytest.mark.timeout(300), pytest.mark.slow]

GROUPS = {
    "neighbors": {"method": "pynndescent", "n_neighbors": 8, "min_recall": 0.0},
    "preprocess": {"scale": "standard", "pca": 3},
}
SECTIONS = {"kdtree": {"neighbors": {"method": "kdtree", "n_neighbors": 8}}, "exact": GROUPS, "nn_descent": GROUPS}


def contents(job: Job) -> dict[str, bytes]:
    """Every array and bundle, including intermediate ones."""
    names = [name for name in job.store.objects.names("") if not name.startswith(("_run/", "_done/", "report/"))]
    return {name: job.store.objects.get(name) for name in names if name != "zarr.json"}


def run(folder, address, name) -> dict[str, bytes]:
    """A run with several groups of cells, searched exactly or by NN-descent."""
    job = Job(folder, address, **SECTIONS[name])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cell_groups, "EXACT_CELL", 150 if name == "nn_descent" else 1000)
        assert job.run() == ""
    reports = read_reports(job.store)
    assert reports["order_points.find_cells"][0].report["count"] == 15
    sent = [Counter(report.report["counts"]) for report in reports.get("find_neighbors.send_members", [])]
    members = sum(sent, Counter())
    assert len(members) == (0 if name == "kdtree" else 4)
    assert all(150 < number < 1000 for number in members.values())
    return contents(job)


@pytest.fixture(scope="module")
def serial(tmp_path_factory):
    return functools.cache(lambda name: run(tmp_path_factory.mktemp(name), None, name))


def check(actual: dict[str, bytes], expected: dict[str, bytes]) -> None:
    assert actual.keys() == expected.keys()
    assert [name for name in actual if actual[name] != expected[name]] == []
    assert len(actual) > 100


def test_processes_give_the_bytes_of_a_serial_run(tmp_path, serial):
    cluster = Cluster(kind="local", workers=2, memory="2GiB")
    with connect(cluster) as client:
        for name in SECTIONS:
            check(run(tmp_path / name, client.scheduler.address, name), serial(name))


def test_threads_give_the_bytes_of_a_serial_run(tmp_path, serial):
    with (
        dask.config.set({"distributed.worker.profile.enabled": WORKER_PROFILE}),
        LocalCluster(
            n_workers=1,
            threads_per_worker=4,
            processes=False,
            protocol="tcp",
            host="127.0.0.1",
            dashboard_address="127.0.0.1:0",
        ) as cluster,
        Client(cluster) as client,
    ):
        for name in SECTIONS:
            check(run(tmp_path / name, client.scheduler.address, name), serial(name))


def test_comparison_detects_another_block_size(tmp_path, serial):
    job = Job(tmp_path, None, execution={"block_points": 140, "cluster": {"kind": "serial"}}, **SECTIONS["kdtree"])
    assert job.run() == ""
    actual = contents(job)
    assert any(actual.get(name) != data for name, data in serial("kdtree").items())
    np.testing.assert_array_equal(job.store.read_all("original_index").shape, (900,))


@pytest.mark.parametrize("scale", ["none", "standard"])
def test_block_sizes_give_the_same_embedding(tmp_path, scale):
    """`execution.block_points: auto` depends on the number of workers, so the result must not depend on blocks."""
    embeddings = []
    for size in (900, 140):
        execution = {"block_points": size, "cluster": {"kind": "serial"}}
        job = Job(tmp_path / str(size), None, execution=execution, preprocess={"scale": scale}, **SECTIONS["kdtree"])
        assert job.run() == ""
        embeddings.append(job.store.read_all("embedding").tobytes())
    assert embeddings[0] == embeddings[1]
