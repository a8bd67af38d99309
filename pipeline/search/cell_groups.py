"""Neighbours in overlapping groups of cells: `find_neighbors` runs one round, `mend_graph` more if recall is low.

Every point is sent to its nearest groups of cells, each group is searched separately, and the lists are merged by
distance. In the first round all points go to two groups, and half of them, those nearest to a third, also to that. A
task writes one object, with a part for each group or block that reads from it (`Bundles.write_parts`). So every chunk
of points is read once, and the size of a group bounds the memory. A round with more overlap uses smaller groups, so
that each has as many members as before: time grows with the overlap, memory does not.
"""

from collections.abc import Generator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from ..core.arrays import Floats, Int32, Int64
from ..engine import disk_costs, task_costs
from ..engine.plan import Layout
from ..engine.plan_sizes import index_dtype, largest_total
from ..engine.second_level import join_step, parts_of
from ..engine.step import WHOLE_DATA, Compilation, Count, Counts, Report, Step, Work, task
from ..kernels.neighbors.cells import first_distinct, group_cells, nearest_groups, reach_of_next
from ..kernels.neighbors.knn import NeighborLists, cell_neighbors, select_nearest
from ..kernels.neighbors.list_lengths import as_stored
from ..storage import array_specs
from ..storage.array_specs import PlannedArray
from ..storage.blocks import Blocks
from ..storage.store import Store

Lists = tuple[array_specs.ArraySpec, array_specs.ArraySpec]

GROUP_POINTS = 50_000
GROUP_BYTES = 256 * 2**20
GROUP_BLOCKS = 8  # upper limit in blocks, whose size follows the workers' memory
N_GROUPS_EACH = 2
SHARE_OF_THIRD, REACH_SAMPLE = 0.5, 2000
"""In the first round this share of the points is also searched in a third group. A point is, if its distance to that
group, divided by its distance to its nearest cell, is below a quantile of REACH_SAMPLE points."""
EXACT_CELL = 4096
COMPILATION = Compilation("nn_descent_cache.cached_search", 38.0)
"""The search of pynndescent; processor seconds of the reference core."""
FIRST = "_work"
GROUPS, MEMBERS, NEIGHBORS = "groups", "group_members", "group_neighbors"
"""Names in the folder of a round: the group of each cell, the members of each group, and the lists found in it."""


class Round(NamedTuple):
    """A search of every point in its `overlap` nearest groups of about `target` points.

    `place` is the folder of the round's arrays and bundles. `previous` is the folder of the lists to merge with its
    own, empty for the first round.
    """

    overlap: int
    target: int
    seed: int
    place: str = FIRST
    previous: str = ""
    remark: str = ""

    def key(self, step: str) -> str:
        """The key of one of its steps, unique to the round."""
        return f"{step}_{self.overlap}" if self.previous else step

    def search_key(self, name: str) -> str:
        return self.key(f"{'mend_graph' if self.previous else 'find_neighbors'}.{name}")

    @property
    def visits(self) -> float:
        """Groups per point, on average."""
        return self.overlap + (0.0 if self.previous else SHARE_OF_THIRD)

    @property
    def lists(self) -> Lists:
        ids, distances = list_names(self.place)
        return replace(array_specs.KNN_INDICES, name=ids), replace(array_specs.KNN_DISTANCES, name=distances)


def list_names(place: str) -> tuple[str, str]:
    """Names of the arrays of ids and distances in the folder of a round."""
    return f"{place}/knn_indices", f"{place}/knn_distances"


def first_round(layout: Layout, k: int, seed: int) -> Round:
    return Round(N_GROUPS_EACH, first_target(layout, k), seed)


def first_target(layout: Layout, k: int) -> int:
    """Points of a group, not counting those shared with other groups."""
    row = layout.row_bytes
    return max(10 * k, min(GROUP_POINTS, GROUP_BYTES // row, GROUP_BLOCKS * layout.block_points))


def next_round(previous: Round, max_overlap: int, layout: Layout, k: int, seed: int, remark: str) -> Round:
    """A round with twice the overlap, up to `max_overlap`, in groups with as many members as in the first round."""
    overlap = min(2 * previous.overlap, max_overlap)
    members = min(layout.n_points, N_GROUPS_EACH * first_target(layout, k))
    next_seed = (seed + 7919 * overlap) % 2**32  # another seed gives other random trees even if the groups are the same
    place = f"{FIRST}/overlap_{overlap}"
    return Round(overlap, max(2 * k, members // overlap), next_seed, place, previous.place, remark)


def search_groups(
    layout: Layout, k: int, searched: Round, output: Lists
) -> Generator[Step[Report], list[Report], None]:
    """group_cells -> send_members (-> join_members) -> search_cells (-> join_lists) -> merge, into `output`."""
    [groups] = yield from _group_step(layout, searched)
    n_groups, n_blocks, row = groups.count, layout.blocks.count, layout.row_bytes
    visits = round(searched.visits * layout.n_points)
    members_disk = disk_costs.parts(writers=n_blocks, readers=n_groups, arrays=2, n_bytes=visits * (row + 8))
    lists_disk = disk_costs.parts(writers=n_groups, readers=n_blocks, arrays=3, n_bytes=visits * (16 * k + 8))
    sent = yield from _send_step(layout, searched, members_disk)
    members, folder = largest_total([report.counts for report in sent]), f"{searched.place}/{MEMBERS}"
    key = searched.search_key("join_members")
    yield from join_step(key, folder, n_blocks, n_groups, members * (row + 8), members_disk)
    yield from _search_step(layout, k, searched, n_groups, members, lists_disk)
    key, folder = searched.search_key("join_lists"), f"{searched.place}/{NEIGHBORS}"
    of_block = (searched.overlap + 1) * layout.block_points * (16 * k + 8)
    yield from join_step(key, folder, n_groups, n_blocks, of_block, lists_disk)
    yield from _merge_step(layout, k, searched, output, n_groups)


def _group_step(layout: Layout, searched: Round) -> Step[Count]:
    row, d, n_cells = layout.row_bytes, layout.n_features, layout.n_cells
    n_bytes = task_costs.TASK_BYTES + 32 * layout.input_blocks.count * n_cells + 8 * n_cells * d
    n_bytes += 3 * layout.block_points * row + REACH_SAMPLE * (row + 16 * d)
    return Step(
        searched.search_key("group_cells"),
        task(group_all_cells, target=searched.target, place=searched.place),
        1,
        n_bytes,
        bundles={f"{searched.place}/{GROUPS}.npz": disk_costs.files(1, 8 * n_cells)},
        version=2,
        expected=lambda b: Count(max(1, round(layout.n_points / searched.target))),
        runs_on=WHOLE_DATA,
        remark=searched.remark,
    )


def _send_step(layout: Layout, searched: Round, members_disk: int) -> Step[Counts]:
    row, overlap, blocks = layout.row_bytes, searched.overlap, layout.blocks
    n_bytes = task_costs.TASK_BYTES + blocks.size * (6 * row + 320) + 40 * layout.n_cells * layout.n_features
    n_bytes += task_costs.written_at_once((overlap + 1) * blocks.size * (row + 16))
    n_bytes += task_costs.SCORE_BYTES if searched.previous else 0
    expected = min(blocks.n, round(searched.visits * searched.target))
    return Step(
        searched.search_key("send_members"),
        task(send_members, n_groups_each=overlap, blocks=blocks, place=searched.place),
        blocks.count,
        n_bytes,
        bundles={f"{searched.place}/{MEMBERS}": members_disk},
        version=3,
        expected=lambda b: Counts({"0": 0 if b else expected}),
    )


def _search_step(layout: Layout, k: int, searched: Round, n_groups: int, members: int, lists_disk: int) -> Step[Report]:
    """Search each group, of at most `members` points."""
    place, blocks, d = searched.place, layout.blocks, layout.n_features
    n_bytes = task_costs.TASK_BYTES + task_costs.COMPILER_BYTES + 2 * task_costs.SCORE_BYTES
    n_bytes += members * (3 * layout.row_bytes + 8 * d + 120 * k + 1200)
    n_bytes += task_costs.written_at_once(members * (16 * k + 8))
    return Step(
        searched.search_key("search_cells"),
        task(search_group, n_neighbors=k, exact_below=EXACT_CELL, seed=searched.seed, blocks=blocks, place=place),
        n_groups,
        n_bytes,
        bundles={f"{place}/{NEIGHBORS}": lists_disk},
        deletes=(parts_of(f"{place}/{MEMBERS}", blocks.count).folder,),
        version=4,
        work=Work(0.0, layout.n_points * searched.visits * (2e-5 + 5e-8 * d), COMPILATION),
    )


def _merge_step(layout: Layout, k: int, searched: Round, output: Lists, n_searched: int) -> Step[Report]:
    blocks, place, n_groups = layout.blocks, searched.place, searched.overlap
    ids, distances = output
    into, previous = (ids.name, distances.name), searched.previous
    merge = task(
        merge_block, n_neighbors=k, n_groups_each=n_groups, blocks=blocks, place=place, previous=previous, into=into
    )
    n_bytes = task_costs.TASK_BYTES + blocks.size * (n_groups + 1) * k * 80
    arrays, deletes = planned_lists(output, layout, k), (parts_of(f"{place}/{NEIGHBORS}", n_searched).folder,)
    return Step(searched.search_key("merge"), merge, blocks.count, n_bytes, arrays=arrays, deletes=deletes)


def planned_lists(specs: Lists, layout: Layout, k: int) -> tuple[PlannedArray, PlannedArray]:
    """The arrays of ids and distances of up to k neighbours of each point."""
    ids, distances = specs
    return ids.sized(layout.blocks, k, dtype=index_dtype(layout.n_points)), distances.sized(layout.blocks, k)


def group_all_cells(store: Store, block_index: int, target: int, place: str) -> Count:
    """Assign every cell to a group, and write the reach within which a point joins its third group."""
    counts = store.read_all(array_specs.CELL_COUNTS.name).sum(axis=0)
    groups = group_cells(counts, target)
    n_groups = int(groups.max()) + 1
    reach = _reach_of_third(store, groups) if place == FIRST and n_groups > N_GROUPS_EACH else 0.0
    store.write_bundle(f"{place}/{GROUPS}", groups=groups, reach=np.array(reach))
    return Count(n_groups)


def _reach_of_third(store: Store, groups: Int32) -> float:
    """A point joins its third group up to this distance, in units of the distance to its nearest cell."""
    n_points = store.array(array_specs.POINTS.name).shape[0]
    rows = np.unique(np.linspace(0, n_points - 1, REACH_SAMPLE).astype(np.int64))
    points, nearest = (store.gather(spec.name, rows) for spec in (array_specs.POINTS, array_specs.NEAREST_CELLS))
    centers = store.read_bundle("_work/cells")["centers"]
    ratios = reach_of_next(points, centers, nearest, groups, N_GROUPS_EACH)
    return float(np.quantile(ratios, SHARE_OF_THIRD, method="lower"))


def send_members(store: Store, block_index: int, n_groups_each: int, blocks: Blocks, place: str) -> Counts:
    """Send every point of a block to its nearest groups of cells, one part per group."""
    start, stop = blocks.rows(block_index)
    grouped, centers = store.read_bundle(f"{place}/{GROUPS}"), store.read_bundle("_work/cells")["centers"]
    groups, points = grouped["groups"], store.read(array_specs.POINTS.name, start, stop)
    if place == FIRST:
        cells = store.read(array_specs.NEAREST_CELLS.name, start, stop)
        nearest = first_distinct(groups[cells], n_groups_each + 1)
        reached = reach_of_next(points, centers, cells, groups, n_groups_each) <= grouped["reach"]
        nearest[~reached, n_groups_each:] = -1
    else:  # the stored nearest cells can belong to fewer groups than needed
        nearest = nearest_groups(points, centers, groups, n_groups_each)
    rows_of = {
        group: np.flatnonzero((nearest == group).any(axis=1)) for group in np.unique(nearest[nearest >= 0]).tolist()
    }
    parts = ((group, {"members": rows + start, "points": points[rows]}) for group, rows in rows_of.items())
    store.write_parts(f"{place}/{MEMBERS}/{block_index:05d}", int(groups.max()) + 1, parts)
    return Counts({str(group): len(rows) for group, rows in rows_of.items()})


def search_group(
    store: Store, block_index: int, n_neighbors: int, exact_below: int, seed: int, blocks: Blocks, place: str
) -> Report:
    """Search a group of cells: neighbours of all its members within the group, one part per block of points."""
    members, points = read_members(store, block_index, blocks.count, place)
    lists = cell_neighbors(points, members, n_neighbors, exact_below, (seed + block_index) % 2**32)
    parts = (
        (target, {"members": members[part], "ids": lists.ids[part], "distances": lists.distances[part]})
        for target, part in blocks.holding(members)  # the ids ascend
    )
    store.write_parts(f"{place}/{NEIGHBORS}/{block_index:05d}", blocks.count, parts)
    return Report()


def read_members(store: Store, group: int, n_blocks: int, place: str) -> tuple[Int64, Floats]:
    """(ids of a group's members, ascending; their coordinates), both empty if it has none."""
    parts = list(parts_of(f"{place}/{MEMBERS}", n_blocks).of(store, group))
    if not parts:
        return np.zeros(0, np.int64), np.zeros((0, 0))
    return np.concatenate([part["members"] for part in parts]), np.concatenate([part["points"] for part in parts])


def merge_block(
    store: Store,
    block_index: int,
    n_neighbors: int,
    n_groups_each: int,
    blocks: Blocks,
    place: str,
    previous: str,
    into: tuple[str, str],
) -> Report:
    """Merge the lists that a block's points got in their groups with those of the previous round."""
    start, stop = blocks.rows(block_index)
    ids = np.full((stop - start, n_groups_each + 1, n_neighbors), -1, np.int64)
    distances = np.full(ids.shape, np.inf)
    n_filled = np.zeros(stop - start, np.int64)
    n_groups = int(store.read_bundle(f"{place}/{GROUPS}")["groups"].max()) + 1
    for part in parts_of(f"{place}/{NEIGHBORS}", n_groups).of(store, block_index):
        rows = part["members"] - start
        ids[rows, n_filled[rows]], distances[rows, n_filled[rows]] = part["ids"], part["distances"]
        n_filled[rows] += 1
    if previous:  # the last list is that of a third group, or of the previous round
        ids[:, -1], distances[:, -1] = (store.read(name, start, stop) for name in list_names(previous))
    flat = (stop - start, ids.shape[1] * n_neighbors)
    lists = select_nearest(ids.reshape(flat), distances.reshape(flat), np.arange(start, stop), n_neighbors)
    write_lists(store, start, lists, into)
    return Report()


def write_lists(store: Store, start: int, lists: NeighborLists, into: Sequence[str]) -> None:
    """Write the lists of the rows from `start` on to two arrays (ids, distances)."""
    ids, distances = into
    store.write(ids, start, lists.ids.astype(store.array(ids).dtype))
    store.write(distances, start, as_stored(lists.distances))
