import numpy as np
import pytest

from lle.kernels.graph import connectivity
from lle.kernels.graph import repair as repair_kernel
from lle.kernels.graph.connectivity import Edges, closed_classes, neighbor_graph, weak_components
from lle.kernels.graph.contraction import condensed_in_memory
from lle.kernels.graph.repair import AUTO_REVERSE, Lists, Repair, apply_repair, plan_repair
from tests.support.oracle import dense_factor, exact_neighbors, point_weights
from tests.support.seeds import seeds

SEEDS = seeds(11, 23, 37)

Arrays = tuple[np.ndarray, np.ndarray, np.ndarray]


def clumped_lists(seed: int, n_points: int = 300, k: int = 5) -> Arrays:
    """Neighbours, distances and components of points in a wide cloud with tight clumps just above k points."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_points, 3))
    for start in (20, 60, 100, 250):
        X[start : start + k + 2] = X[start] + 1e-3 * rng.normal(size=(k + 2, 3))
    return lists_of_points(X, k)


def lists_of_points(X: np.ndarray, k: int) -> Arrays:
    neighbors, distances = exact_neighbors(X, k)
    component = weak_components(neighbor_graph(neighbors))[1]
    return neighbors.astype(np.int32), distances.astype(np.float32), component


def random_groups(seed: int, k: int = 3) -> Arrays:
    """Groups of 20 points that list each other, and some points of other groups."""
    rng = np.random.default_rng(seed)
    edges = {}
    for i in range(400):
        own_group = i // 20 * 20 + rng.choice(20, k, replace=False)
        listed = rng.choice(400, 1) if rng.random() < 0.08 else own_group
        edges |= {(i, int(j)): (i, int(j), float(rng.random())) for j in listed if j != i}
    return lists_of_edges(list(edges.values()), 400)


def lists_of_edges(edges: list[tuple[int, int, float]], n_points: int) -> Arrays:
    """Ragged lists from (row, neighbor, distance)."""
    width = max(sum(edge[0] == i for edge in edges) for i in range(n_points))
    indices = np.full((n_points, width), -1, dtype=np.int32)
    distances = np.full((n_points, width), np.nan, dtype=np.float32)
    for i in range(n_points):
        for slot, (_, j, distance) in enumerate(sorted((e for e in edges if e[0] == i), key=lambda e: e[2])):
            indices[i, slot], distances[i, slot] = j, distance
    return indices, distances, weak_components(neighbor_graph(indices))[1]


def repaired(lists: Arrays, plan: Repair) -> np.ndarray:
    return apply_repair(lists[0], lists[1], 0, plan.added, plan.max_neighbors)[0]


def large(lists: Arrays, n_points: int) -> np.ndarray:
    """Mask of the components with at least `n_points` points."""
    return np.bincount(lists[2]) >= n_points


def bridges_of(lists: Arrays, is_large: np.ndarray) -> tuple[Edges, np.ndarray]:
    """The bridges without reverse neighbours, and the component of each closed class that is left."""
    indices, distances, component = lists
    stored = Lists(len(indices), 7, lambda start, stop: (indices[start:stop], distances[start:stop]), 0)
    graph = condensed_in_memory(indices)
    bridges = repair_kernel._bridges(stored, graph, component, is_large)
    return bridges, component[graph.lowest[graph.closed]]


def reverse_by_hand(lists: Arrays, limit: int, avoid: np.ndarray) -> set[tuple[int, int]]:
    """The rule as a loop over single points."""
    indices, distances, _ = lists
    chosen = set()
    for i in range(len(indices)):
        listing = [(j, s) for j in range(len(indices)) for s in np.flatnonzero(indices[j] == i)]
        ways = [(j, s) for j, s in listing if j not in indices[i]]
        ways.sort(key=lambda way: (avoid[i] >= 0 and avoid[i] == avoid[way[0]], distances[way], way[0]))
        chosen |= {(i, j) for j, _ in ways[:limit]}
    return chosen


@pytest.mark.parametrize("seed", SEEDS)
def test_reverse_zero__adds_nothing(seed: int) -> None:
    lists = clumped_lists(seed)
    plan = plan_repair(*lists, reverse=0, is_large=large(lists, 10))
    assert (len(plan.added.rows), plan.n_reverse_added, plan.n_bridges_added) == (0, 0, 0)
    assert plan.closed_classes_left == plan.closed_classes_before > 1
    np.testing.assert_array_equal(plan.classes_by_component, [plan.closed_classes_left])
    assert plan.max_neighbors == 5


@pytest.mark.parametrize(("n_transient", "n_added"), [(0, 0), (6, 0), (7, 4)])
def test_auto__one_class_must_hold_half_of_the_points(n_transient: int, n_added: int) -> None:
    ring = [(i, (i + 1) % 6, 1.0) for i in range(6)]
    chain = [(i, i - 1, 1.0) for i in range(6, 6 + n_transient)]
    plan = plan_repair(
        *lists_of_edges(ring + chain, 6 + n_transient),
        reverse=None,
        is_large=large(lists_of_edges(ring + chain, 6 + n_transient), 1),
    )
    assert (plan.closed_classes_before, plan.closed_classes_left) == (1, 1)
    assert len(plan.added.rows) >= n_added
    assert (len(plan.added.rows) > 0) == (n_added > 0)


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("reverse", [None, 1, 2, 7])
def test_reverse__rows_neighbours_and_distances(seed: int, reverse: int | None) -> None:
    """With None only the members of the four clumps get reverse neighbours; every other point can leave its class."""
    lists = clumped_lists(seed)
    indices, distances, component = lists
    plan = plan_repair(*lists, reverse=reverse, is_large=large(lists, 10))
    classes = closed_classes(neighbor_graph(indices))
    small = 2 * classes.sizes < len(indices)
    avoid = np.where(np.append(small, False)[classes.class_of_point], classes.class_of_point, -1)
    expected = reverse_by_hand(lists, AUTO_REVERSE if reverse is None else reverse, avoid)
    if reverse is None:
        assert 4 <= (avoid >= 0).sum() <= 40
        expected = {(i, j) for i, j in expected if avoid[i] >= 0}
    edges = list(zip(plan.added.rows.tolist(), plan.added.neighbors.tolist(), strict=True))
    assert component.max() == 0
    assert expected <= set(edges)
    assert len(expected) == plan.n_reverse_added or (reverse is None and len(expected) > 0.8 * plan.n_reverse_added)
    assert len(set(edges)) == len(edges) == plan.n_reverse_added + plan.n_bridges_added
    for (i, j), distance in zip(edges, plan.added.distances, strict=True):
        (slot,) = np.flatnonzero(indices[j] == i)
        assert distance == distances[j, slot]
        assert j not in indices[i]
    order = np.lexsort((plan.added.distances, plan.added.rows))
    np.testing.assert_array_equal(order, np.arange(len(order)))


def test_auto__small_closed_classes_are_repaired_until_none_is_left() -> None:
    # {0, 1, 2} is entered from 3 only, {0, ..., 5} from 6 only; 6, ..., 19 form a chain of transient points.
    edges = [(0, 1, 1.0), (1, 2, 1.0), (2, 0, 1.0), (3, 0, 2.0), (3, 4, 1.0), (4, 5, 1.0), (5, 3, 1.0), (6, 4, 3.0)]
    edges += [(i, i - 1, 1.0) for i in range(7, 20)]
    lists = lists_of_edges(edges, 20)
    plan = plan_repair(*lists, reverse=None, is_large=np.array([True]))
    added = set(zip(plan.added.rows.tolist(), plan.added.neighbors.tolist(), strict=True))
    assert {(0, 3), (4, 6)} <= added
    assert plan.n_bridges_added == 0
    classes = closed_classes(neighbor_graph(repaired(lists, plan)))
    assert classes.sizes.tolist() == [10]
    assert set(plan.added.rows.tolist()) <= set(range(10))


@pytest.mark.parametrize("seed", seeds(11, 23, 37, 41, 53))
def test_auto__one_null_vector_for_each_component_of_a_random_graph(seed: int) -> None:
    """Groups of ten points that list each other, and some points of other groups: classes inside classes."""
    rng = np.random.default_rng(seed)
    edges = {}
    for i in range(300):
        listed = i // 10 * 10 + rng.choice(10, 3, replace=False)
        if rng.random() < 0.07:
            listed[0] = rng.integers(300)
        edges |= {(i, int(j)): (i, int(j), float(rng.random())) for j in listed if j != i}
    lists = lists_of_edges(list(edges.values()), 300)
    n_components = int(lists[2].max()) + 1
    plan = plan_repair(*lists, reverse=None, is_large=np.ones(n_components, dtype=bool))
    assert plan.closed_classes_left == null_dimension(repaired(lists, plan), rng) == n_components
    assert plan.closed_classes_before > n_components
    np.testing.assert_array_equal(plan.classes_by_component, np.ones(n_components))
    everyone = plan_repair(*lists, reverse=AUTO_REVERSE, is_large=np.ones(n_components, dtype=bool))
    assert plan.n_reverse_added < 0.8 * everyone.n_reverse_added


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("reverse", [None, 1, 4])
def test_repair__one_null_vector(seed: int, reverse: int | None) -> None:
    rng = np.random.default_rng(seed)
    lists = clumped_lists(seed)
    plan = plan_repair(*lists, reverse=reverse, is_large=large(lists, 10))
    dimension_before = null_dimension(lists[0], rng)
    assert (dimension_before, plan.closed_classes_before) == (dimension_before, dimension_before)
    assert dimension_before > 1
    assert plan.closed_classes_left == null_dimension(repaired(lists, plan), rng) == 1


def null_dimension(indices: np.ndarray, rng: np.random.Generator) -> int:
    X = rng.random((len(indices), 3))
    weights = np.zeros(indices.shape)
    for i, row in enumerate(indices):
        weights[i, row >= 0] = np.abs(point_weights(X[i], X[row[row >= 0]], 1.0))
    weights /= weights.sum(axis=1, keepdims=True)
    return int(np.count_nonzero(np.linalg.svd(dense_factor(indices, weights), compute_uv=False) < 1e-9))


def test_reverse__small_class_gets_an_edge_to_outside_before_nearer_inner_points() -> None:
    # {0, 1, 2}: 0 -> 1 -> 2 -> 0 is closed; 1's nearest one-way lister is 0 (inside), 3 lists it from farther away.
    edges = [(0, 1, 1.0), (1, 2, 1.5), (2, 0, 1.7), (3, 1, 5.0), (3, 4, 1.0), (4, 3, 1.0), (5, 4, 1.0), (6, 5, 1.0)]
    lists = lists_of_edges(edges, 7)
    plan = plan_repair(*lists, reverse=1, is_large=large(lists, 1))
    by_row = dict(zip(plan.added.rows.tolist(), plan.added.neighbors.tolist(), strict=True))
    assert by_row[1] == 3
    assert by_row[2] == 1
    assert plan.added.distances[plan.added.rows == 1] == 5.0


def test_bridges__shortest_edge_out_repeated_along_a_chain() -> None:
    # {0, 1} is entered by the chain 4 -> 3 -> 2 -> 1 (and by 2 -> 0, which is longer); 4 also lists the ring 5, ..., 9.
    edges = [(0, 1, 1.0), (1, 0, 1.0), (2, 0, 2.5), (2, 1, 2.0), (3, 2, 2.0), (4, 3, 3.0), (4, 5, 9.0)]
    edges += [(i, 5 + (i - 4) % 5, 1.0) for i in range(5, 10)]
    lists = lists_of_edges(edges, 10)
    bridges, components_left = bridges_of(lists, np.array([True]))
    assert components_left.tolist() == [0]
    np.testing.assert_array_equal(bridges.rows, [1, 2, 3])
    np.testing.assert_array_equal(bridges.neighbors, [2, 3, 4])
    np.testing.assert_array_equal(bridges.distances, [2, 2, 3])
    untouched, components_left = bridges_of(lists, np.array([False]))
    assert (len(untouched.rows), components_left.tolist()) == (0, [0, 0])


@pytest.mark.parametrize("seed", SEEDS)
def test_auto__repairs_only_large_components_that_need_it(seed: int) -> None:
    rng = np.random.default_rng(seed)
    healthy = np.column_stack([np.arange(120), np.zeros((120, 2))]) * 1e-2 + 50 + 1e-4 * rng.random((120, 3))
    sick = rng.normal(size=(150, 3))
    sick[40:46] = sick[40] + 1e-3 * rng.normal(size=(6, 3))
    small = np.repeat([-10.0, 10.0, -4.0, 0.1, 4.0], [6, 6, 1, 1, 1])[:, None] * [1.0, 0, 0] - [0, 100, 0]
    lists = lists_of_points(np.concatenate([healthy, sick, small + 1e-3 * rng.normal(size=small.shape)]), 5)
    np.testing.assert_array_equal(lists[2], np.repeat([1, 0, 2], [120, 150, 15]))
    plan = plan_repair(*lists, reverse=None, is_large=large(lists, 50))
    np.testing.assert_array_equal(np.unique(lists[2][plan.added.rows]), [0])
    assert closed_classes(neighbor_graph(lists[0])).sizes.tolist() == [120, 6, 6, 6]
    classes = closed_classes(neighbor_graph(repaired(lists, plan)))
    assert classes.sizes[0] > 75
    assert classes.sizes[1:].tolist() == [120, 6, 6]
    assert len(np.unique(plan.added.rows)) <= 6
    assert plan.closed_classes_left == 4
    np.testing.assert_array_equal(plan.classes_by_component, [1, 1, 2])
    everywhere = plan_repair(*lists, reverse=4, is_large=large(lists, 5))
    assert everywhere.closed_classes_left == 3
    np.testing.assert_array_equal(np.unique(lists[2][everywhere.added.rows]), [0, 1, 2])


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("reverse", [None, 1, 3])
def test_plan__does_not_depend_on_rows_at_once(seed: int, reverse: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    for lists in (clumped_lists(seed), random_groups(seed)):
        plan = plan_repair(*lists, reverse=reverse, is_large=large(lists, 10))
        assert plan.n_reverse_added
        with monkeypatch.context() as patch:
            patch.setattr(connectivity, "ROWS_AT_ONCE", 7)
            patch.setattr(repair_kernel, "ROWS_AT_ONCE", 7)
            patch.setattr(repair_kernel, "TARGETS_AT_ONCE", 5)
            again = plan_repair(*lists, reverse=reverse, is_large=large(lists, 10))
        for expected, actual in zip(plan, again, strict=True):
            np.testing.assert_array_equal(expected, actual)


@pytest.mark.parametrize("seed", SEEDS)
def test_plan__a_pass_has_no_more_edges_than_its_bound(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Most lists point to the same few points."""
    rng, n, k, at_once = np.random.default_rng(seed), 3000, 6, 100
    indices = np.stack([rng.permutation(40)[:k] for _ in range(n)]).astype(np.int32)
    indices[:40] = np.arange(40)[:, None] + np.arange(40, 40 + k)
    lists = indices, np.ones((n, k), np.float32), np.zeros(n, np.int32)
    plan = plan_repair(*lists, reverse=2, is_large=np.ones(1, np.bool_))
    sizes, nearest = [], repair_kernel._nearest
    monkeypatch.setattr(repair_kernel, "TARGETS_AT_ONCE", at_once)
    monkeypatch.setattr(repair_kernel, "ROWS_AT_ONCE", 7)
    monkeypatch.setattr(
        repair_kernel, "_nearest", lambda edges, *others: sizes.append(len(edges.rows)) or nearest(edges, *others)
    )
    again = plan_repair(*lists, reverse=2, is_large=np.ones(1, np.bool_))
    assert max(sizes) <= 2 * at_once * (k + 2) + 7 * k
    for expected, actual in zip(plan, again, strict=True):
        np.testing.assert_array_equal(expected, actual)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("block_points", [1, 37, 300])
def test_apply__lists_of_any_blocks(seed: int, block_points: int) -> None:
    indices, distances, component = clumped_lists(seed)
    indices[::7, 3:], distances[::7, 3:] = -1, np.nan
    plan = plan_repair(indices, distances, component, reverse=None, is_large=np.bincount(component) >= 10)
    blocks = [
        apply_repair(
            indices[start : start + block_points],
            distances[start : start + block_points],
            start,
            plan.added,
            plan.max_neighbors,
        )
        for start in range(0, len(indices), block_points)
    ]
    new_indices, new_distances = (np.concatenate(parts) for parts in zip(*blocks, strict=True))
    assert new_indices.shape == new_distances.shape == (300, plan.max_neighbors)
    assert (new_indices.dtype, new_distances.dtype) == (np.int32, np.float32)
    assert (new_indices >= 0).sum(axis=1).max() == plan.max_neighbors
    np.testing.assert_array_equal(np.isinf(new_distances), new_indices < 0)
    ascending = np.sort(new_distances, axis=1)
    np.testing.assert_array_equal(new_distances, ascending)
    for i in range(300):
        pairs = set(zip(new_indices[i].tolist(), new_distances[i].tolist(), strict=True)) - {(-1, np.inf)}
        old = {(int(j), float(d)) for j, d in zip(indices[i], distances[i], strict=True) if j >= 0}
        of_point = plan.added.rows == i
        new = set(zip(plan.added.neighbors[of_point].tolist(), plan.added.distances[of_point].tolist(), strict=True))
        assert pairs == old | new
