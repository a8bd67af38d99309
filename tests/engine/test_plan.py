"""The plan: blocks cover each row once, sizes are correct, and the steps are those of a run."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lle.engine.plan import Layout, deleted_inputs, disk_totals
from lle.engine.plan import planned as plan_steps
from lle.engine.plan_sizes import (
    CHUNK_BYTES,
    MAX_BLOCK_POINTS,
    MIN_BLOCK_POINTS,
    block_points,
    block_points_for,
    index_dtype,
    neighbor_method,
)
from lle.stages.registry import STAGES
from lle.storage import array_specs
from lle.storage.array_specs import ArraySpec, PlannedArray
from lle.storage.blocks import Blocks
from tests.support.plans import config_of, make_layout, walk_all
from tests.support.steps import Facts, make_step, no_task

SPEC = ArraySpec("x", ("point",), "float64", "")


class TestBlocks:
    @pytest.mark.parametrize(
        ("requested", "n_rows", "row_bytes", "expected"),
        [
            ("auto", 10**6, 12, 65_536),
            ("auto", 70_000, 784 * 4, 8192),
            ("auto", 10**6, 513, 32_768),
            ("auto", 10**6, 10**6, 1024),
            ("auto", 10**6, 10**9, 1024),
            ("auto", 300, 12, 300),
            ("auto", 300, 10**6, 300),
            (500, 10**6, 12, 500),
            (500, 499, 12, 499),
            (70_000, 10**6, 8, 70_000),
        ],
    )
    def test_block_sizes_for_known_inputs(self, requested, n_rows, row_bytes, expected):
        assert block_points(requested, n_rows, row_bytes) == expected

    @given(st.integers(1, 10**8), st.integers(1, 10**7))
    def test_auto_keeps_a_chunk_small_and_a_power_of_two(self, n_rows, row_bytes):
        block = block_points("auto", n_rows, row_bytes)
        assert 1 <= block <= min(n_rows, MAX_BLOCK_POINTS)
        assert block * row_bytes <= CHUNK_BYTES or block <= MIN_BLOCK_POINTS
        assert block == n_rows or math.log2(block).is_integer()
        assert block in (n_rows, MAX_BLOCK_POINTS) or 2 * block * row_bytes > CHUNK_BYTES

    @given(st.integers(1, 10**8), st.integers(1, 3000), st.integers(1, 64))
    def test_workers_get_three_blocks_each_unless_blocks_would_be_too_small(self, n_rows, d, n_workers):
        layout = Layout(n_rows, d, "float32", block_points("auto", n_rows, 4 * d))
        size = block_points_for(n_workers, layout)
        assert 1 <= size <= layout.block_points
        assert size == layout.block_points or math.log2(size).is_integer()
        if size == layout.block_points == n_rows:
            assert n_rows * (128 + d) <= 8 * 2**20 or n_rows < 2048
        elif -(-n_rows // size) < 3 * n_workers:  # half the size would be too small
            assert size == MIN_BLOCK_POINTS or size // 2 * (128 + d) < 2**20
        if size < layout.block_points:
            assert size == MIN_BLOCK_POINTS or size * (128 + d) > 2**20 - 128 - d

    @given(st.integers(1, 3000), st.integers(1, 400))
    def test_cover_all_rows_exactly_once(self, n_rows, size):
        layout = Layout(n_input=n_rows, n_features_input=1, dtype="float32", block_points=size, n_points=n_rows)
        assert layout.input_blocks.count == layout.blocks.count
        ranges = [Blocks(n_rows, size).rows(block) for block in range(layout.input_blocks.count)]
        assert [row for start, stop in ranges for row in range(start, stop)] == list(range(n_rows))
        assert all(start % size == 0 for start, _ in ranges)


class TestChoices:
    @pytest.mark.parametrize(
        ("requested", "n_points", "n_features", "expected"),
        [
            ("auto", 50_000, 10, "kdtree"),
            ("auto", 50_001, 6, "pynndescent"),
            ("auto", 10**7, 5, "kdtree"),
            ("auto", 20_000, 11, "brute"),
            ("auto", 20_001, 11, "pynndescent"),
            ("brute", 10**7, 2, "brute"),
            ("kdtree", 10, 784, "kdtree"),
            ("pynndescent", 10, 2, "pynndescent"),
        ],
    )
    def test_neighbor_method(self, requested, n_points, n_features, expected):
        assert neighbor_method(requested, n_points, n_features) == expected

    def test_index_dtype_holds_every_id(self):
        assert index_dtype(2**31 - 1) == "int32"
        assert index_dtype(2**31) == "int64"


class TestBytes:
    @pytest.mark.parametrize("dtype", ["uint8", "int32", "int64", "float32", "float64", "uint64"])
    def test_planned_array(self, dtype):
        assert PlannedArray(SPEC, (7, 11, 13), dtype, 5).nbytes == np.zeros((7, 11, 13), dtype).nbytes

    def test_freed_data_count_until_the_step_that_frees_them_is_done(self):
        kept, freed = (PlannedArray(replace(SPEC, name=name), (n,), "uint8", 5) for name, n in (("x", 3), ("y", 10)))
        steps = [
            writing((kept, freed)),
            writing(bundles={"z": 100}, frees=("y",)),
            writing(bundles={"w": 40}, frees=("z",)),
        ]
        assert disk_totals(steps) == (3 + 100 + 40, 3 + 40)


class TestFreed:
    """first writes a and b, second frees a and writes c, third frees c, fourth frees b."""

    STEPS = ("ab", ""), ("c", "a"), ("", "c"), ("", "b")

    @pytest.mark.parametrize(
        ("n_before", "freed", "needed"),
        [
            (1, ("a",), [0]),
            (2, ("a", "c"), [1]),
            (2, ("", "c"), [1]),
            (2, ("b", "c"), [0, 1]),
            (3, ("a", "c", ""), []),
            (3, ("ab", "c", ""), [0]),
            (4, ("ab", "c", "", ""), []),
        ],
    )
    def test_steps_whose_freed_data_the_next_one_may_read(self, n_before, freed, needed):
        before = self.STEPS[:n_before]
        steps = [writing(bundles=dict.fromkeys(bundles, 0), frees=tuple(frees)) for bundles, frees in before]
        assert deleted_inputs(list(zip(steps, map(set, freed), strict=True))) == needed


def writing(arrays=(), bundles=None, frees=()):
    return make_step("s.t", arrays=arrays, bundles=bundles or {}, deletes=frees)


CONFIGS = {
    "defaults": {},
    "brute": {"neighbors": {"method": "brute"}},
    "pynndescent": {"neighbors": {"method": "pynndescent", "reverse": 4}},
    "scaled": {"preprocess": {"scale": "standard", "pca": 2, "invalid": "drop"}},
    "digits": {"input": {"kind": "synthetic", "name": "digits"}},
}


@pytest.mark.parametrize("sections", CONFIGS.values(), ids=CONFIGS.keys())
class TestWalk:
    def test_walk_visits_all_stages_in_order(self, sections):
        config = config_of(**sections)
        steps, _ = walk_all(config, make_layout(config))
        assert list(dict.fromkeys(step.stage for step in steps)) == list(STAGES)
        names = [(step.stage, step.name) for step in steps]
        assert len(set(names)) == len(names)

    def test_plans_every_array_of_the_schema_once(self, sections):
        config = config_of(**sections)
        layout = make_layout(config)
        steps, end = walk_all(config, layout)
        arrays = {array.spec.name: array for step in steps for array in step.arrays}
        assert len(arrays) == sum(len(step.arrays) for step in steps)
        not_written = {array_specs.DEGREE.name, array_specs.DISTANCE_RATIO.name}  # of laplacian and of placed rows
        assert {spec.name for spec in array_specs.ARRAYS} - not_written <= set(arrays)
        n, m = layout.n_input, config.eigensolver.n_components
        assert arrays["embedding"].shape == (n, m)
        assert arrays["neighbor_indices"].shape == arrays["weights"].shape == (n, end.k_max)
        assert all(len(array.shape) == len(array.spec.dims) for array in arrays.values())

    def test_a_block_of_an_array_is_written_by_one_task(self, sections):
        config = config_of(**sections)
        steps, _ = walk_all(config, make_layout(config))
        for step in steps:
            for array in step.arrays:
                assert step.n_blocks in (1, math.ceil(array.shape[0] / array.block)), (step.name, array.spec.name)
                assert step.n_blocks == 1 or array.block in (1, step.task.parameters["blocks"].size), (
                    step.name,
                    array.spec.name,
                )

    def test_steps_free_what_an_earlier_step_of_their_stage_wrote(self, sections):
        config = config_of(**sections)
        steps = walk_all(config, make_layout(config))[0]
        assert {step.name for step in steps if step.deletes} >= {"gather", "solve", "merge"}
        for number, step in enumerate(steps):
            earlier = [writer for writer in steps[:number] if writer.stage == step.stage]
            assert {*step.deletes} <= {name for writer in earlier for name in writer.written}
            # bytes are planned for all bundles of a step together
            assert all(len(writer.bundles) == 1 for writer in earlier if {*step.deletes} & {*writer.bundles})

    def test_all_steps_have_tasks_with_bytes(self, sections):
        config = config_of(**sections)
        for step in walk_all(config, make_layout(config))[0]:
            assert step.n_blocks >= 1
            assert step.task_bytes > 0

    def test_bytes_grow_with_points_features_and_neighbors(self, sections):
        config = config_of(**sections)
        layout = make_layout(config)
        wider = {**config.neighbors.model_dump(), "n_neighbors": config.neighbors.n_neighbors + 9}
        larger = [
            (config, replace(layout, n_input=3 * layout.n_input)),
            (config, replace(layout, n_features_input=2 + layout.n_features_input)),  # by the same search
            (config_of(**{**sections, "neighbors": wider}), layout),
        ]
        small = {step.key: step for step in walk_all(config, layout)[0]}
        for other_config, other_layout in larger:
            for step in walk_all(other_config, other_layout)[0]:
                allowed = 1.05 if step.name in {"read", "find_cells"} else 1.0  # more blocks round less up
                assert allowed * step.task_bytes >= small[step.key].task_bytes, step.name
                assert step.disk_bytes >= small[step.key].disk_bytes, step.name
                assert step.n_blocks >= small[step.key].n_blocks, step.name


class TestWalkReports:
    def test_walk_sends_expected_reports_and_passes_on_the_layout(self):
        received = []

        def first(layout):
            received.append((yield make_step("a.one", no_task, 3, expected=lambda block: Facts({"block": block}))))
            received.append((yield make_step("a.two")))
            return replace(layout, n_points=17)

        def second(layout):
            received.append(layout.n_points)
            yield make_step("b.three", no_task, layout.n_points)
            return replace(layout, k_max=5)

        steps, layout = plan_steps({"a": first, "b": second}, Layout(19, 2, "float32", 5))
        assert layout.k_max == 5
        assert [step.name for step in steps] == ["one", "two", "three"]
        assert received == [[Facts({"block": 0}), Facts({"block": 1}), Facts({"block": 2})], [], 17]


def test_bytes_to_count_points_of_a_wide_table_are_those_of_its_few_rows():
    """271 rows of 47,192 columns hold 0.1 GB."""
    layout = make_layout(config_of(), n=271, d=47_192, block=271)
    [count] = [step for step in walk_all(config_of(), layout)[0] if step.key == "measure_quality.count"]
    assert count.task_bytes < 2**31
