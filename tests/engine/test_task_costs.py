"""Planned memory: blocks that fit workers, errors with both numbers."""

import contextlib
import json
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
from typer.testing import CliRunner

from lle.cli.commands import app
from lle.clusters import limits
from lle.config.load import load_config
from lle.config.models import Config
from lle.core.errors import NotEnoughMemory, StoreError
from lle.engine import execute, task_costs
from lle.engine.execute import Executor, run_step
from lle.engine.plan import Layout, planned
from lle.engine.plan_sizes import KDTREE_FEATURES, MIN_BLOCK_POINTS, largest_total
from lle.engine.progress import SilentProgress
from lle.engine.step import DRIVER, WHOLE_DATA, WORKER
from lle.engine.task_costs import COMPILER_BYTES, GIB, LIBRARY_BYTES, MIB, SCORE_BYTES, TASK_BYTES, fits
from lle.jobs import run as runs
from lle.jobs import run_stages
from lle.jobs.layout import layout_of
from lle.kernels.batches import BATCH_BYTES
from lle.kernels.graph.spanning_links import candidates, most_candidates
from lle.kernels.neighbors.cells import TREE_FEATURES
from lle.linalg.reg_step import PATCH_POINT_BYTES, TRIAL_POINT_BYTES
from lle.search.contracted_graph import Components, link_steps
from lle.stages.embed_new import Fit, Job, calibrate_step, embed_step
from lle.stages.ingest import open_input
from lle.stages.laplacian_factors import BATCH_LINKS
from lle.stages.order_points import SORT_BYTES
from lle.stages.registry import stages_of_run
from lle.storage.store import Store
from tests.support.commands import write_config
from tests.support.plans import config_of, make_layout, walk_all
from tests.support.stage_runs import Progress
from tests.support.steps import make_step

# 10,007 rows of 7 float64 features in blocks of 1009, 11 neighbours, 3 coordinates. A plan assumes that a block needs
# the rows of four others, and that no row is dropped.
SECTIONS = {
    "lle": {},
    "brute": {"neighbors": {"method": "brute"}},
    "groups": {"neighbors": {"method": "pynndescent"}},
    "k_per_point": {"neighbors": {"k_per_point": "k.npy"}},
    "precomputed": {"neighbors": {"precomputed": {"kind": "npy", "path": "graph.npy"}, "method": "auto"}},
    "connect": {"graph": {"components": "connect"}},
    "aligned": {"embedding": {"align": "previous"}},
    "laplacian": {"method": "laplacian"},
    "ltsa": {"method": "ltsa"},
    "modified": {"method": "modified"},
}
RECEIVED = 5 * 1009 * (56 + 40) + (2 + 3 * 4) * 1009 * 56 + 6 * BATCH_BYTES
PLANNED = {
    ("lle", "ingest.read"): 1009 * (112 + 112 + 128) + 5 * 102 * 56 + 60013,
    ("lle", "ingest.read_labels"): 1009 * 256 + 60013,
    ("lle", "ingest.merge_duplicates"): 130 * 10007,
    ("lle", "order_points.find_cells"): LIBRARY_BYTES + 10 * 102 * (168 + 336 + 32),
    ("lle", "order_points.gather"): 1009 * (6 * 56 + 24 + 64) + 24 * 64 * 5 + 16 * (10 + 5),
    ("brute", "find_neighbors.search"): 2 * SCORE_BYTES + 10007 * (72 + 112) + 1009 * 880 + 4096 * 112,
    ("groups", "find_neighbors.search_cells"): COMPILER_BYTES
    + 2 * SCORE_BYTES
    + 10007 * (168 + 56 + 1320 + 1200 + 2 * (176 + 8)),
    ("precomputed", "find_neighbors.cut"): RECEIVED + 1009 * 13 * 64,
    ("k_per_point", "find_neighbors.read_k"): 10007 * 40 + 128 * 1009 + 60013,
    ("precomputed", "find_neighbors.read_graph"): 10007 * (60 + 12 * 13) + 1009 * 32 * 13,
    ("lle", "mend_graph.measure_recall"): 2000 * 3300,
    ("lle", "mend_graph.contract"): 1009 * 12 * 64,
    ("connect", "mend_graph.components"): 4 * 10007 + 100 * 5040 + 60 * 10007 * 11,
    ("lle", "mend_graph.analyse"): 10007 * (12 + 96 * 15 + 45 * 4 + 4) + 12 * 5040 + 64 * 1009 * 11,
    ("lle", "mend_graph.apply"): 1009 * 880,
    ("lle", "solve_weights.request"): 1009 * 440 + 3 * 1009 * 11 * (16 + 2 * 8),
    ("lle", "solve_weights.send"): 1009 * (392 + 32 + 3 * 24) + 2 * 9 * 1009 * 56,
    ("lle", "solve_weights.choose_reg"): 1009 * (168 + 176 + 64)
    + 6 * BATCH_BYTES
    + 1000 * 12 * (112 + 48)
    + (2501 + 6000) * (224 + 704)
    + 2501 * TRIAL_POINT_BYTES
    + 6000 * PATCH_POINT_BYTES,
    ("lle", "solve_weights.solve"): RECEIVED + 1009 * 528,
    ("laplacian", "local_factors.measure_links"): 1009 * 528,
    ("laplacian", "local_factors.edges"): 5 * 1009 * (44 + 40)
    + (2 + 3 * 4) * 1009 * 44
    + 16 * BATCH_LINKS
    + 1009 * 2200,
    ("laplacian", "local_factors.degrees"): 56 * 10007 + 1009 * 1650,
    ("laplacian", "local_factors.solve"): 1009 * 2640,
    ("ltsa", "local_factors.list_unlisted"): 10007 * 676,
    ("ltsa", "local_factors.solve"): RECEIVED + 1009 * (8 * 144 + 48 * 96 + 528),
    ("modified", "local_factors.spread"): RECEIVED + 1009 * (528 + 32),
    ("modified", "local_factors.threshold"): 40 * 10007,
    ("lle", "assemble_cost.contribute"): 1009 * (60 * 12 + 40 * 144),
    ("lle", "assemble_cost.merge"): 1009 * 80 * 144,
    ("aligned", "solve_embedding.align"): 10007 * (8 * 16 + 24 * 3 + 100),
    ("lle", "measure_quality.geodesics"): 10007 * (990 + 96 + 100) + 2000 * 5000,
    ("lle", "measure_quality.compare"): 3 * 1009 * 24 + 64 * 250_000 + 2000 * (12 * 96 + 56 + 72 + 128),
    ("lle", "write_report.write"): LIBRARY_BYTES + 10007 * (144 + 160 + 640) + 2 * 1009 * 56,
}


@pytest.mark.parametrize("case", SECTIONS)
def test_planned_bytes_equal_values_by_hand(case, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, array in (("x", np.zeros((10007, 7))), ("k", np.full(10007, 12)), ("graph", np.zeros((10007, 13)))):
        np.save(f"{name}.npy", array)
    sections = {"eigensolver": {"n_components": 3}, **SECTIONS[case]}
    sections["neighbors"] = {"method": "kdtree", "n_neighbors": 11, **sections.get("neighbors", {})}
    config = config_of(input={"kind": "npy", "path": "x.npy"}, **sections)
    layout = Layout(10007, 7, "float64", 1009, label_width=2, bytes_beside=60013)
    steps, _ = planned(stages_of_run(config), layout)
    actual = {(case, step.key): step.task_bytes - TASK_BYTES for step in steps}
    expected = {key: value for key, value in PLANNED.items() if key[0] == case}
    assert {key: actual[key] for key in expected} == expected


def test_bytes_of_joining_components_cover_the_choice_of_their_points():
    layout, n = Layout(10**6, 7, "float64", 1009, n_points=10**6, n_features=7, k_max=11), 10**6
    for outside in (n // 10, n // 2, n - 10):
        component = np.zeros(n, np.int32)
        component[:outside] = 1
        steps = link_steps(config_of(), layout, n)
        next(steps)
        planned_bytes = steps.send([Components(2, outside)]).task_bytes
        tracemalloc.start()
        candidates(component)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        others = 1009 * (3 * 56 + 64 + 88) + 2 * SCORE_BYTES + min(outside, 2 * most_candidates(2)) * (848 + 88)
        assert component.nbytes + peak < planned_bytes - TASK_BYTES - others


def test_bytes_of_placing_new_rows_equal_values_by_hand():
    layout = Layout(10007, 7, "float64", 1009, n_points=10007, n_features=3, k_max=41)
    config = config_of(neighbors={"n_neighbors": 11}).model_dump(mode="json")
    job = Job(Fit(config, replace(layout, block_points=1511), "float32", 2, {}), {}, {})
    assert calibrate_step(job, layout).task_bytes == TASK_BYTES + 10_000 * 41 * 120 + 3 * 1511 * 41 * 16
    halo = (65_536 + 8 * 1000) * (72 + 64 + 24 + 32)  # ten cells
    cells = 2 * SCORE_BYTES + (10 + 7) * (192 + 32) + 10 * 1024
    read = 10007 * (24 + 16 + 656 + 64) + 3 * 1511 * 328
    assert embed_step(job, layout, 1.0, 7).task_bytes == (
        TASK_BYTES + 6 * BATCH_BYTES + halo + cells + 1009 * (48 + 1650 + 480 + 3 * 28 + 48 + 16) + read
    )
    large = replace(layout, n_points=10**7, n_features=50)
    exact, in_cells = (embed_step(job, large, 1.0, cells).work.parallel for cells in (0, 5))
    assert in_cells < 0.3 * exact
    config["neighbors"]["method"] = "pynndescent"
    assert calibrate_step(job, layout).task_bytes == (
        TASK_BYTES + 10_000 * 41 * 120 + 3 * 1511 * 41 * 16 + halo + cells + 200 * (48 + 1650 + 480)
    )


def test_planned_searches_take_trees_for_as_many_features_as_the_kernels():
    assert KDTREE_FEATURES == TREE_FEATURES


class TestFigures:
    def test_largest_total_adds_the_values_of_each_target(self):
        assert largest_total([{"0": 5, "1": 3}, {"1": 4}, {"0": 1}]) == 7
        assert largest_total([]) == 0

    @pytest.mark.parametrize("task", [1, 100 * MIB, 3 * GIB, 40 * GIB])
    def test_suggested_limit_is_sufficient_and_close(self, task):
        limit = task_costs.limit_for(task)
        assert task <= task_costs.task_room(limit) <= task + GIB // 5


class TestBlocksFollowMemory:
    """Walks the plan without a run."""

    @pytest.mark.parametrize("dtype", ["float32", "float64"])
    @pytest.mark.parametrize("limit", [1 * GIB, 2 * GIB, 3 * GIB, 64 * GIB])
    def test_block_size_is_the_largest_power_of_two_that_fits(self, limit, dtype):
        config = config_of(neighbors={"n_neighbors": 12, "method": "pynndescent"})
        layout = replace(make_layout(config, n=1_750_016, d=64, block=65_536), dtype=dtype)
        assert task_costs.fit_blocks(stages_of_run(config), layout, None) == layout
        fitted = task_costs.fit_blocks(stages_of_run(config), layout, limit)
        worst = max(s.task_bytes for s in walk_all(config, fitted)[0] if s.runs_on == WORKER)
        assert worst <= task_costs.task_room(limit) or fitted.block_points == MIN_BLOCK_POINTS
        if fitted.block_points < 65_536:
            larger = walk_all(config, replace(fitted, block_points=2 * fitted.block_points))[0]
            assert max(s.task_bytes for s in larger if s.runs_on == WORKER) > task_costs.task_room(limit)

    def test_smallest_blocks_are_tried_before_the_next_limit(self, monkeypatch):
        monkeypatch.setattr(task_costs, "fit_workers", lambda steps, limit: max(s.n_blocks for s in steps) >= limit)
        config = config_of()
        layout = make_layout(config, n=4 * MIN_BLOCK_POINTS, d=3, block=4 * MIN_BLOCK_POINTS)
        sizes = [task_costs.fit_blocks(stages_of_run(config), layout, limit, 1).block_points for limit in (1, 2, 4, 5)]
        assert sizes == [4 * MIN_BLOCK_POINTS, 2 * MIN_BLOCK_POINTS, MIN_BLOCK_POINTS, 4 * MIN_BLOCK_POINTS]

    def test_blocks_are_not_so_small_that_the_plan_itself_fills_the_memory(self, monkeypatch):
        monkeypatch.setattr(task_costs, "MAX_BLOCKS", 1000)
        config = config_of(neighbors={"n_neighbors": 5000}, execution={"block_points": "auto"})
        layout = make_layout(config, n=1000 * 2000, d=3, block=2**16)
        assert layout.n_input / task_costs.fit_blocks(stages_of_run(config), layout, GIB).block_points <= 1000

    def test_no_process_is_planned_above_8_gib_at_10_to_the_8_rows_but_the_eigensolve(self):
        config = config_of(neighbors={"method": "pynndescent", "n_neighbors": 12})
        steps, _ = walk_all(config, replace(make_layout(config, n=10**8, d=50, block=65_536), dtype="float32"))
        large = {s.key for s in steps if s.task_bytes + task_costs.PROCESS_BYTES > 8 * GIB}
        assert large == {"solve_embedding.solve"}

    def test_steps_before_the_eigensolve_do_not_grow_with_the_points(self):
        """Only steps on workers; a step of the driver may hold a few numbers for each point."""
        config = config_of(neighbors={"method": "pynndescent"})
        small, large = (
            {(s.stage, s.name): s for s in walk_all(config, make_layout(config, n=n, d=50, block=16_384))[0]}
            for n in (10**7, 10**8)
        )
        for key, step in small.items():
            if step.runs_on == WORKER and key[0] not in {"solve_embedding", "measure_quality", "write_report"}:
                several = SORT_BYTES if key[1] == "gather" else 0  # blocks are read together within this limit
                assert large[key].task_bytes <= max(step.task_bytes, several) + 50 * MIB, key

    def test_auto_block_size_is_kept_by_the_store(self, tmp_path, run_stages, make_config):
        """A later run with more memory keeps what was computed; with less, it takes blocks that fit."""
        config = make_config(tmp_path, np.random.default_rng(2).normal(size=(9000, 60)), 4096)
        store = run_stages(config, "ingest").store

        def chosen(limit, store):
            cluster = {"kind": "serial", "memory": limit}
            auto = Config.model_validate({**config.model_dump(), "execution": {"cluster": cluster}})
            return layout_of(auto, open_input(auto), store).block_points

        assert chosen("64GiB", None) == 9000
        assert chosen("64GiB", store) == 4096
        assert chosen("500MiB", store) < 4096


def test_auto_blocks_give_each_worker_three_and_explicit_ones_stay(tmp_path):
    np.save(tmp_path / "x.npy", np.zeros((40_000, 200), np.float32))

    def n_blocks(size, **cluster):
        config = Config.model_validate(
            {
                "input": {"kind": "npy", "path": str(tmp_path / "x.npy")},
                "output": {"store": str(tmp_path / "run.zarr")},
                "execution": {"block_points": size, "cluster": {"memory": "64GiB", **cluster}},
            }
        )
        return layout_of(config, open_input(config)).input_blocks.count

    assert n_blocks("auto", kind="serial") == 2
    assert n_blocks("auto", kind="local", workers=1) == 5
    assert n_blocks("auto", kind="local", workers=2) == 10
    assert n_blocks("auto", kind="local", workers=16) == 10  # smaller blocks would not be worth a task
    assert n_blocks(20_000, kind="local", workers=2) == 2
    assert n_blocks(5000, kind="local", workers=2) == 8


def test_a_run_that_one_thread_can_compute_is_planned_with_large_blocks_and_begun(tmp_path, monkeypatch):
    """The search of a group needs more than half of the memory, for any block size."""
    np.save(tmp_path / "x.npy", np.random.default_rng(3).normal(size=(30_000, 50)).astype(np.float32))
    source = {"kind": "npy", "path": str(tmp_path / "x.npy")}
    path = write_config(tmp_path, input=source, execution={"cluster": {"kind": "local"}})
    config, sizes = load_config(path), []
    monkeypatch.setattr(limits, "available_cores", lambda: 2)
    for gib in (64, 2.5):
        for name in ("total_memory", "available_memory"):
            monkeypatch.setattr(limits, name, lambda gib=gib: int(gib * GIB))
        sizes.append(layout_of(config, open_input(config)).block_points)
    assert sizes[0] == sizes[1] > 1024
    share, most = limits.memory_of_workers(config.execution.cluster), limits.memory_of_task(config.execution.cluster)
    layout = layout_of(config, open_input(config))
    steps, _ = planned(stages_of_run(config), layout)
    with pytest.raises(NotEnoughMemory, match="search_cells"):
        task_costs.check_plan(steps, share)
    task_costs.check_plan(steps, most)

    def begin(*arguments, needs_workers):
        raise StoreError("begun")

    monkeypatch.setattr(run_stages, "placement", begin)
    with pytest.raises(StoreError, match="begun"):
        runs.run(config, False, SilentProgress())


class TestRefused:
    def refusal(self, *arguments: object) -> tuple[int, dict]:
        result = CliRunner().invoke(app, [*map(str, arguments), "--json"])
        return result.exit_code, json.loads(result.stdout.strip().splitlines()[-1])

    @pytest.mark.parametrize("command", ["run", "validate"])
    def test_plan_that_does_not_fit_is_refused_before_any_step(self, tmp_path, command):
        np.save(tmp_path / "x.npy", np.random.default_rng(3).normal(size=(4000, 600)))
        config = write_config(
            tmp_path,
            input={"kind": "npy", "path": str(tmp_path / "x.npy")},
            neighbors={"n_neighbors": 90},
            execution={"block_points": 4000, "cluster": {"kind": "serial", "memory": "512MiB"}},
        )
        code, message = self.refusal(command, config)
        assert (code, message["error"]) == (2, "NotEnoughMemory")
        for part in (
            "a task needs",
            "a worker of 0.50 GiB has room for 0.075 GiB",
            "execution.cluster.memory",
            "execution.block_points",
        ):
            assert part in message["message"]
        assert not list(tmp_path.glob("run.zarr/_done/**/*.json"))
        code, planned = self.refusal("plan", config)
        assert (code, planned["status"], planned["message"]) == (2, "failed", message["message"])
        assert {"contribute", "search"} <= {row["step"] for row in planned["steps"] if not row["fits"]}
        table = CliRunner().invoke(app, ["plan", str(config)])
        assert table.exit_code == 2
        assert "worker: does not fit" in table.stdout
        assert table.stderr == f"lle: {message['message']}\n"
        assert "set execution.block_points: auto" in message["message"]

    @pytest.mark.parametrize(("total", "expected"), [(64 * GIB, 1), (GIB // 2, 2)])
    def test_free_memory_that_other_programs_use_is_worth_a_retry(self, tmp_path, monkeypatch, total, expected):
        monkeypatch.setattr(limits, "available_memory", lambda: GIB // 2)
        monkeypatch.setattr(limits, "total_memory", lambda: total)
        np.save(tmp_path / "x.npy", np.random.default_rng(3).normal(size=(4000, 600)))
        config = write_config(
            tmp_path,
            input={"kind": "npy", "path": str(tmp_path / "x.npy")},
            neighbors={"n_neighbors": 90},
            execution={"block_points": 4000, "cluster": {"kind": "serial"}},
        )
        code, message = self.refusal("run", config)
        assert (code, message["error"]) == (expected, "NotEnoughMemory")
        assert ("the same command may succeed later" in message["message"]) == (expected == 1)

    def test_suggested_change_makes_the_plan_fit(self):
        step = make_step("s.t", task_bytes=5 * GIB)
        with pytest.raises(NotEnoughMemory) as caught:
            task_costs.check_worker(step, 2 * GIB)
        suggested = float(str(caught.value).split("Give each worker ")[1].split(" GiB")[0])
        task_costs.check_worker(step, int(suggested * GIB))
        task_costs.check_worker(step, None)

    def test_step_with_size_known_only_in_the_run_is_refused_before_it_starts(self, tmp_path, serial):
        """The step was not begun: it has no record and no array."""
        store = Store(str(tmp_path / "run.zarr"))
        store.create_group({})
        step = make_step("s.t", task_bytes=GIB)
        with pytest.raises(NotEnoughMemory) as caught:
            run_step(step, "", store, Executor(None, memory=GIB), Progress())
        assert caught.value.exit_code == 2
        run_step(step, "", store, Executor(None, memory=2 * GIB), Progress())
        run_step(step, "", store, Executor(None, memory=GIB), Progress())  # finished: nothing to start

    @pytest.mark.parametrize(("limit", "configured"), [(2 * GIB, None), (0, 2 * GIB)])
    def test_whole_data_steps_are_checked_against_the_high_memory_worker(self, limit, configured, monkeypatch):
        """The limit of the high-memory worker counts, else that of the config, not that of ordinary workers."""

        ordinary = {"memory_limit": GIB, "nthreads": 1, "resources": {}}
        workers = {0: ordinary, 1: {"memory_limit": limit, "nthreads": 4, "resources": {"BIG": 1}}}
        monkeypatch.setattr(execute, "workers_of", lambda client: workers)
        executor = Executor(object(), "BIG", 64 * GIB, configured)
        executor.require_memory(make_step("s.t", task_bytes=GIB, runs_on=WHOLE_DATA))
        with pytest.raises(NotEnoughMemory, match=r"the high-memory worker of 2\.00 GiB has room for 1\.42") as caught:
            executor.require_memory(make_step("s.t", task_bytes=3 * GIB, runs_on=WHOLE_DATA))
        assert caught.value.exit_code == 2
        # the driver waits for what the workers do
        with pytest.raises(NotEnoughMemory, match="and a worker of"):
            executor.require_memory(make_step("s.t", task_bytes=GIB, runs_on=DRIVER))
        executor.require_memory(make_step("s.t", task_bytes=GIB // 64, runs_on=DRIVER))
        monkeypatch.setattr(execute, "available_memory", lambda: GIB // 128)
        with pytest.raises(NotEnoughMemory, match="runs in the driver"):
            executor.require_memory(make_step("s.t", task_bytes=GIB // 64, runs_on=DRIVER))
        executor.require_memory(make_step("s.t", task_bytes=2**60, runs_on=WHOLE_DATA, all_cores=True))

    def test_plan_uses_the_memory_of_pods(self):
        """The limit of a worker is nine tenths of its pod's memory; whole-data steps use the limit of their own pod."""
        cluster = {"kind": "kubernetes", "memory": "2GiB", "high_memory": "4GiB"}
        config = config_of(execution={"cluster": cluster})
        sizes = [1274 * MIB, 1275 * MIB, 3302 * MIB, 3303 * MIB]
        for runs_on, n_fitting in ((WORKER, 1), (DRIVER, 1), (WHOLE_DATA, 3)):
            steps = [make_step("s.t", task_bytes=size, runs_on=runs_on) for size in sizes]
            assert [fits(step, config) for step in steps] == [True] * n_fitting + [False] * (4 - n_fitting)

    def test_plan_is_checked_like_the_run(self):
        """A step of the driver sends tasks of its size to the workers."""
        for runs_on, all_cores, is_checked in (
            (DRIVER, False, True),
            (DRIVER, True, False),
            (WHOLE_DATA, False, False),
        ):
            step = make_step("s.t", task_bytes=GIB, runs_on=runs_on, all_cores=all_cores)
            refused = pytest.raises(NotEnoughMemory, match="a worker of") if is_checked else contextlib.nullcontext()
            with refused:
                task_costs.check_plan([step], GIB)

    def test_driver_steps_are_checked_against_the_memory_of_the_driver(self, tmp_path, serial):
        store = Store(str(tmp_path / "run.zarr"))
        store.create_group({})
        step = make_step("s.t", task_bytes=2**60, runs_on=WHOLE_DATA)
        with pytest.raises(NotEnoughMemory, match=r"runs in the driver and needs 1073741824\.00 GiB") as caught:
            run_step(step, "", store, Executor(None), Progress())
        assert caught.value.exit_code == 1  # other processes may leave
