"""Check the neighbour lists and the graph, and repair them.

The recall is measured on a sample against exact search over all points. While it is below the bound of the config, more
groups of cells are searched. Then weak components and closed classes are computed: each block joins the points that
reach each other inside it, and one task reads the edges between such nodes. Members of small closed classes get reverse
neighbours.
"""

from dataclasses import dataclass, replace

import numpy as np

from ..config.models import Config
from ..config.neighbors import reverse_neighbors
from ..engine import disk_costs, task_costs
from ..engine.plan import Layout, Steps
from ..engine.step import WHOLE_DATA, Report, Step, Work, task
from ..kernels.graph.connectivity import NO_EDGES, Edges
from ..kernels.graph.repair import AUTO_REVERSE, TARGETS_AT_ONCE, apply_repair, repair_graph
from ..linalg.component_matrices import input_rows
from ..search import contracted_graph
from ..search.cell_groups import list_names, planned_lists
from ..search.recall import raise_recall
from ..storage import array_specs
from ..storage.blocks import Blocks
from ..storage.store import Store

NAMED_COMPONENTS = 100
"""Components whose sizes and closed classes are reported, in the order in which they are embedded."""


def steps(config: Config, layout: Layout) -> Steps:
    """choose_sample -> sample_exact -> measure_recall, more rounds while that is too low
    -> contract -> components -> connect, if the config connects components -> analyse -> apply.
    """
    if config.neighbors.precomputed is None:
        searched = yield from raise_recall(config, layout)
        layout = replace(layout, lists=searched.place)
    nodes = yield from contracted_graph.contract_step(layout)
    connects = config.graph.components == "connect" and config.method != "pca"
    links = connects and (yield from contracted_graph.link_steps(config, layout, nodes.nodes))
    [graph] = yield from analyse_step(config, layout, nodes, links)
    k_max, blocks = graph.k_max, layout.blocks
    arrays = planned_lists((array_specs.NEIGHBOR_INDICES, array_specs.NEIGHBOR_DISTANCES), layout, k_max)
    apply, work = task(apply_block, k_max=k_max, blocks=blocks, place=layout.lists), Work(parallel=6e-7 * blocks.n)
    n_bytes = task_costs.TASK_BYTES + 80 * blocks.size * k_max
    yield from Step("mend_graph.apply", apply, blocks.count, n_bytes, arrays, work=work)
    return replace(layout, k_max=k_max, n_components=graph.n_components_weak, n_large=graph.n_components_large)


def analyse_step(config: Config, layout: Layout, nodes: contracted_graph.Nodes, links: bool) -> "Step[GraphReport]":
    n, k, blocks = layout.n_points, layout.k_max, layout.blocks
    m, lists, longest = config.eigensolver.n_components, layout.lists, nodes.longest
    reverse = reverse_neighbors(config.neighbors.reverse, config.method, m, config.k_bounds[0])
    least = 1 if config.graph.min_component == "auto" else config.graph.min_component
    analysis = task(
        analyse_graph, reverse=reverse, min_component=least, blocks=blocks, place=lists, links=links, longest=longest
    )
    # so many points get so many reverse neighbours
    targets, added = (min(n, TARGETS_AT_ONCE), AUTO_REVERSE) if reverse is None else (n, reverse)
    repair = 12 * n + 12 * nodes.nodes + 96 * min(targets, TARGETS_AT_ONCE) * (k + added) + 45 * targets * added
    repair += task_costs.TASK_BYTES + 64 * blocks.size * k
    return Step(
        "mend_graph.analyse",
        analysis,
        1,
        max(contracted_graph.condensed_bytes(n=n, k=k, nodes=nodes.nodes), repair) + 4 * layout.n_input,
        arrays=(array_specs.POINT_COMPONENT.sized(blocks),),
        bundles={"_work/additions": disk_costs.files(blocks.count, 24 * n * max(1, reverse or 0))},
        version=4,
        expected=lambda b: GraphReport(k + (reverse or 0), 1, 1, [], 1, 1, [], 0, 0, 0),
        runs_on=WHOLE_DATA,
        work=Work(0.03 + 2e-8 * n * k),
    )


@dataclass(frozen=True)
class GraphReport(Report):
    """Components and closed classes of the graph, and what their repair added.

    `component_sizes` are input rows; `closed_classes` are counted before the repair, `closed_classes_left` after it.
    """

    k_max: int
    n_components_weak: int
    n_components_large: int
    component_sizes: list[int]
    closed_classes: int
    closed_classes_left: int
    closed_classes_by_component: list[int]
    reverse_added: int
    bridges_added: int
    points_repaired: int


def analyse_graph(
    store: Store,
    block_index: int,
    reverse: int | None,
    min_component: int,
    blocks: Blocks,
    place: str,
    links: bool,
    longest: int,
) -> GraphReport:
    """Weak components, closed classes, and the reverse neighbours that repair them.

    Components with at least `min_component` input rows come first (always including the largest), then the others; both
    are sorted by distinct points. The order does not depend on n_components, so a new n_components keeps the graph.
    """
    added = contracted_graph.read_links(store) if links else NO_EDGES
    lists = contracted_graph.stored_lists(store, blocks, place, longest, added)
    graph = contracted_graph.condensed_graph(store, blocks, added)
    graph.settle()
    n_components, component = graph.weak_components()
    rows = input_rows(store)
    n_points, n_rows = np.bincount(component), np.bincount(component, weights=rows).astype(np.int64)
    is_large = n_rows >= min(min_component, int(n_rows.max()))
    order = np.lexsort((-n_points, ~is_large))
    component, is_large, n_rows = np.argsort(order).astype(np.int32)[component], is_large[order], n_rows[order]
    store.write(array_specs.POINT_COMPONENT.name, 0, component)
    repair = repair_graph(lists, graph, component, reverse, is_large)
    additions = Edges(*(np.concatenate(parts) for parts in zip(added, repair.added, strict=True)))
    order = np.argsort(additions.rows, kind="stable")
    for target in range(blocks.count):
        of_block = order[slice(*np.searchsorted(additions.rows[order], blocks.rows(target)))]
        selected = {name: values[of_block] for name, values in additions._asdict().items()}
        store.write_bundle(f"_work/additions/{target:05d}", **selected)
    n_repaired = len(np.unique(repair.added.rows))
    message = (
        f"graph: {n_repaired} of {blocks.n} points got {repair.n_reverse_added} reverse neighbours and "
        f"{repair.n_bridges_added} bridges, which link closed groups to other points (closed classes: "
        f"{repair.closed_classes_before} before, {repair.closed_classes_left} after; pieces: {n_components})"
    )
    return GraphReport(
        k_max=max(repair.max_neighbors, store.array(list_names(place)[0]).shape[1]),
        n_components_weak=int(n_components),
        n_components_large=int(is_large.sum()),
        component_sizes=n_rows[:NAMED_COMPONENTS].tolist(),
        closed_classes=int(repair.closed_classes_before),
        closed_classes_left=int(repair.closed_classes_left),
        closed_classes_by_component=repair.classes_by_component[:NAMED_COMPONENTS].tolist(),
        reverse_added=int(repair.n_reverse_added),
        bridges_added=int(repair.n_bridges_added),
        points_repaired=n_repaired,
        message=message if n_repaired else "",
    )


def apply_block(store: Store, block_index: int, k_max: int, blocks: Blocks, place: str) -> Report:
    """Write the final neighbour lists of a block: searched and added neighbours, sorted by distance."""
    start, stop = blocks.rows(block_index)
    indices, distances = (store.read(name, start, stop) for name in list_names(place))
    added = Edges(**store.read_bundle(f"_work/additions/{block_index:05d}"))
    indices, distances = apply_repair(indices, distances, start, added, k_max)
    store.write(array_specs.NEIGHBOR_INDICES.name, start, indices)
    store.write(array_specs.NEIGHBOR_DISTANCES.name, start, distances)
    return Report()
