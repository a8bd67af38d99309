"""Recall below its bound: points are searched in more groups of cells, up to a limit; then the run fails."""

import io
import json
from functools import wraps

import numpy as np
import pytest

from lle.core.errors import BoundsNotMet, StageIncomplete
from lle.engine import plan_sizes, task_costs
from lle.engine.damage import StepRecord
from lle.engine.plan import Layout, Walker
from lle.engine.progress import JsonProgress, RunProgress
from lle.engine.step import BlockReport, Step
from lle.jobs.run import run
from lle.report.collect_metrics import collect
from lle.search import cell_groups
from lle.search.cell_groups import Round, first_round, list_names, next_round, read_members
from lle.storage.records import to_json
from tests.support.oracle import exact_neighbors
from tests.support.steps import make_step

N, K = 1000, 5


@pytest.fixture
def search(tmp_path, run_stages, make_config, monkeypatch):
    """Runs the stages up to mend_graph on Gaussian points in 30 dimensions, in cells of 40 and groups of 150 points."""
    monkeypatch.setattr(plan_sizes, "CELL_POINTS", 40)
    monkeypatch.setattr(cell_groups, "GROUP_POINTS", 150)
    points = np.random.default_rng(19).normal(size=(N, 30))

    def run(min_recall, block=400, name="run", upto="mend_graph", **neighbors):
        neighbors = {"method": "pynndescent", "n_neighbors": K, "min_recall": min_recall, **neighbors}
        config = make_config(
            tmp_path,
            points,
            block,
            neighbors=neighbors,
            output={"store": str(tmp_path / name)},
            input={"kind": "npy", "path": str(tmp_path / "points0.npy")},
            quality={"sample": N},
        )
        return run_stages(config, upto)

    return run


def recall_of(run, place) -> float:
    expected, _ = exact_neighbors(run.store.read_all("points"), K)
    actual = run.store.read_all(list_names(place)[0])
    return float(np.mean([len(set(a) & set(b)) / K for a, b in zip(actual.tolist(), expected.tolist(), strict=True)]))


def measured(run) -> dict:
    reports = {
        key: [BlockReport(b, 0, 0, to_json(report)) for b, report in enumerate(blocks)]
        for key, blocks in run.reports.items()
    }
    return vars(collect(reports, {key: StepRecord("", 1, 0.0) for key in reports}, N, 30))


class TestRaisedRecall:
    @pytest.mark.slow
    def test_recall_is_raised_until_the_bound_holds(self, search):
        run = search(0.95)
        recalls = measured(run)
        rounds = recalls["recall_raised"]
        assert [r["overlap"] for r in rounds] == [4, 8][: len(rounds)]
        assert rounds[0]["before"] == pytest.approx(recall_of(run, "_work"))
        assert rounds[0]["before"] < 0.95
        assert rounds[-1]["after"] == recalls["recall"]["value"] >= 0.95
        assert all(r["before"] < 0.95 for r in rounds)
        for r in rounds:
            assert r["after"] == pytest.approx(recall_of(run, f"_work/overlap_{r['overlap']}"))
        final = list_names(f"_work/overlap_{rounds[-1]['overlap']}")[0]
        np.testing.assert_array_equal(run.store.read_all("neighbor_indices")[:, :K], run.store.read_all(final))

    @pytest.mark.slow
    def test_quality_uses_the_lists_of_the_last_round(self, search):
        run = search(0.95, upto="measure_quality")
        chosen = run.store.read_bundle("_work/quality_sample")
        final = f"_work/overlap_{measured(run)['recall_raised'][-1]['overlap']}"
        last, first = (run.store.read_all(list_names(place)[0])[chosen["rows"]] for place in (final, "_work"))
        np.testing.assert_array_equal(chosen["listed"], last)
        assert (first != last).any()

    def test_no_additional_round_if_the_bound_holds(self, search):
        run = search(0.5)
        assert measured(run)["recall_raised"] == []
        assert not any(step.endswith(("_4", "_8")) for step in run.reports)

    def test_groups_of_additional_rounds_are_not_larger(self, search):
        run = search(0.95)
        sizes = {}
        for place, step in (("_work", "find_neighbors.group_cells"), ("_work/overlap_4", "mend_graph.group_cells_4")):
            members = [
                read_members(run.store, g, run.layout.blocks.count, place)[0] for g in range(run.reports[step][0].count)
            ]
            sizes[place] = list(map(len, members))
        assert len(sizes["_work/overlap_4"]) > 1.5 * len(sizes["_work"])
        assert sum(sizes["_work/overlap_4"]) == 4 * N  # each in four groups
        assert np.mean(sizes["_work/overlap_4"]) < 1.2 * np.mean(sizes["_work"])

    @pytest.mark.slow
    def test_same_lists_for_any_block_size(self, search):
        small_blocks, large_blocks = search(0.95, 400, "one"), search(0.95, 1000, "other")
        np.testing.assert_array_equal(*(run.store.read_all("neighbor_indices") for run in (small_blocks, large_blocks)))

    @pytest.mark.slow
    def test_interrupted_round_is_resumed(self, search, monkeypatch):
        """The finished half is kept, and the lists have the bytes of an uninterrupted run."""
        uninterrupted = search(0.95, name="whole")
        search_group, finished = cell_groups.search_group, []

        @wraps(search_group)
        def fail(store, block, *arguments, place="_work", **more):
            if place != "_work" and block == 5:
                raise OSError("gone")
            finished.append((block, place))
            return search_group(store, block, *arguments, place=place, **more)

        with monkeypatch.context() as patch:
            patch.setattr(cell_groups, "search_group", fail)
            with pytest.raises(StageIncomplete, match="search_cells_4: 1 of"):
                search(0.95, name="resumed")
        searched_blocks = []
        with monkeypatch.context() as patch:
            patch.setattr(
                cell_groups,
                "search_group",
                wraps(search_group)(
                    lambda s, block, **more: searched_blocks.append(block) or search_group(s, block, **more)
                ),
            )
            resumed = search(0.95, name="resumed")
        assert len([block for block, place in finished if place == "_work/overlap_4"]) > 5
        assert searched_blocks[0] == 5
        assert searched_blocks.count(5) == len(measured(resumed)["recall_raised"])
        for name in ("neighbor_indices", "neighbor_distances"):
            assert resumed.store.read_all(name).tobytes() == uninterrupted.store.read_all(name).tobytes()

    @pytest.mark.slow
    def test_lower_recall_bound_reuses_the_lists_of_the_first_round(self, search):
        raised, first = search(0.95), search(0.5)
        assert measured(raised)["recall_raised"] != measured(first)["recall_raised"] == []
        actual = first.store.read_all(list_names("_work")[0])
        np.testing.assert_array_equal(first.store.read_all("neighbor_indices")[:, :K], actual)


@pytest.mark.slow
def test_third_groups_of_half_of_the_points_raise_the_recall(search, monkeypatch):
    recalls = {}
    for share in (0.0, 0.5):
        monkeypatch.setattr(cell_groups, "SHARE_OF_THIRD", share)
        run = search(0.0, name=f"share_{share}")
        [grouped] = run.reports["find_neighbors.group_cells"]
        members = [read_members(run.store, g, run.layout.blocks.count, "_work")[0] for g in range(grouped.count)]
        visits = sum(map(len, members)) / N
        assert visits == pytest.approx(2 + share, abs=0.03)
        recalls[share] = recall_of(run, "_work")
    assert recalls[0.5] > recalls[0.0] + 0.03


class TestLimit:
    def test_error_states_the_limit_of_groups(self, search):
        with pytest.raises(BoundsNotMet) as caught:
            search(1.0, max_overlap=3)
        for part in ("min_recall is 1.0", "in 3 groups a point (neighbors.max_overlap) after 0.", "Raise"):
            assert part in str(caught.value)
        assert caught.value.exit_code == 3

    def test_two_groups_a_point_are_not_mentioned_as_a_limit(self, search):
        with pytest.raises(BoundsNotMet) as caught:
            search(0.95, max_overlap=2)
        assert "groups a point" not in str(caught.value)

    @pytest.mark.slow
    def test_error_shows_the_recall_of_this_run_only(self, tmp_path, search, make_config):
        """Lists of an earlier run with more overlap are stored; this run ends at the bound before it uses them."""
        points = np.random.default_rng(19).normal(size=(N, 30))
        results = {}
        for max_overlap in (8, 2):
            neighbors = {"method": "pynndescent", "n_neighbors": K, "min_recall": 0.95, "max_overlap": max_overlap}
            config = make_config(
                tmp_path,
                points,
                400,
                neighbors=neighbors,
                quality={"sample": N},
                input={"kind": "npy", "path": str(tmp_path / "x.npy")},
                output={"store": str(tmp_path / "run.zarr"), "report": False},
            )
            if max_overlap == 8:
                np.save(tmp_path / "x.npy", points)
                results[max_overlap] = run(config, False, RunProgress(io.StringIO())).metrics
                continue
            with pytest.raises(BoundsNotMet) as caught:
                run(config, False, RunProgress(io.StringIO()))
            results[max_overlap] = json.loads((tmp_path / "run.zarr" / "report" / "metrics.json").read_text())
        assert results[8]["recall"]["value"] >= 0.95 > results[2]["recall"]["value"]
        assert f"measured {results[2]['recall']['value']:.4f}" in str(caught.value)
        assert results[8]["recall_raised"] != results[2]["recall_raised"] == []
        assert (results[2]["n_points"], results[2]["eigenvalues"], results[2]["closed_classes"]) == (N, None, None)


class TestRounds:
    layout = Layout(10**6, 32, "float32", 65_536, n_points=10**6, n_features=32)

    def test_memory_does_not_grow_with_rounds(self):
        searched = first_round(self.layout, 12, 3)
        rounds = [searched]
        while searched.overlap < 12:
            searched = next_round(searched, 12, self.layout, 12, 3, "")
            rounds.append(searched)
        assert [r.overlap for r in rounds] == [2, 4, 8, 12]
        assert {r.overlap * r.target for r in rounds} <= {100_000, 99_996}
        assert len({r.seed for r in rounds}) == len({r.place for r in rounds}) == 4
        assert [r.previous for r in rounds] == ["", *(r.place for r in rounds[:-1])]
        plans = [{s.name.rsplit("_", 1)[0]: s.task_bytes for s in self.steps(r)} for r in rounds]
        for figures in plans[1:]:
            assert figures["search_cells"] <= plans[0]["search"] + task_costs.TASK_BYTES

    def steps(self, searched: Round) -> list[Step]:
        walker = Walker()
        walker.drive(cell_groups.search_groups(self.layout, 12, searched, searched.lists))
        return walker.steps

    @pytest.mark.parametrize("kind", [RunProgress, JsonProgress])
    def test_each_remark_is_one_line_of_the_log(self, kind):
        stream = io.StringIO()
        kind(stream).begin(make_step("s.t", remark="recall 0.7 is below"), 0)
        assert sum("recall 0.7 is below" in line for line in stream.getvalue().splitlines()) == 1
