"""The neighbour graph of a run, whose blocks are contracted on the workers, and links between its components."""

from collections.abc import Generator, Iterator
from dataclasses import dataclass, replace

import numpy as np

from ..config.models import Config
from ..core.arrays import Float32, Float64, Int64, Ints
from ..core.errors import counted
from ..engine import disk_costs, task_costs
from ..engine.plan import Layout
from ..engine.plan_sizes import search_among_all
from ..engine.step import WHOLE_DATA, Report, Step, Work, task
from ..kernels.graph.connectivity import NO_EDGES, Edges
from ..kernels.graph.contraction import EDGES_AT_ONCE, CondensedGraph, Pairs, contract
from ..kernels.graph.repair import Lists, apply_repair, longest_with
from ..kernels.graph.spanning_links import POINTS_AT_ONCE, as_edges, candidates, most_candidates, spanning_links
from ..kernels.neighbors.knn import TIE, empty_lists, exact_neighbors, merge_into
from ..storage import array_specs
from ..storage.blocks import Blocks
from ..storage.store import Store
from .cell_groups import list_names

EDGES, LABELS, LINKS = "_work/node_edges", "_work/component_labels", "_work/links"
MOST_PASSES = 10
EXPECTED_NODES = 0.5
"""Nodes for each point that a plan assumes."""


@dataclass(frozen=True)
class Nodes(Report):
    """Nodes of a block, and the length of its longest list."""

    nodes: int
    longest: int


def contract_step(layout: Layout) -> Generator[Step[Report], list[Report], Nodes]:
    """contract: the strong components of each block by its own edges; returns all nodes, and the longest list."""
    n, k, blocks = layout.n_points, layout.k_max, layout.blocks
    nodes = yield from Step(
        "mend_graph.contract",
        task(contract_block, blocks=blocks, place=layout.lists),
        blocks.count,
        task_costs.TASK_BYTES + 64 * blocks.size * (k + 1),
        arrays=(array_specs.POINT_NODE.sized(blocks),),
        bundles={EDGES: disk_costs.files(blocks.count, 16 * n * k)},
        expected=lambda b: Nodes(round(EXPECTED_NODES * blocks.size), k),
        work=Work(parallel=1.05e-7 * n * k),
    )
    return Nodes(sum(report.nodes for report in nodes), max(report.longest for report in nodes))


def contract_block(store: Store, block_index: int, blocks: Blocks, place: str) -> Nodes:
    """Write the node of each point of a block, and the edges between nodes."""
    start, stop = blocks.rows(block_index)
    indices = store.read(list_names(place)[0], start, stop)
    contracted = contract(indices, start)
    store.write(array_specs.POINT_NODE.name, start, contracted.node)
    store.write_bundle(f"{EDGES}/{block_index:05d}", sources=contracted.sources, targets=contracted.targets)
    return Nodes(contracted.n_nodes, int((indices >= 0).sum(axis=1).max()))


def condensed_graph(store: Store, blocks: Blocks, links: Edges = NO_EDGES) -> CondensedGraph:
    node, n_nodes = np.empty(blocks.n, np.int32), 0
    for start, stop in map(blocks.rows, range(blocks.count)):
        node[start:stop] = store.read(array_specs.POINT_NODE.name, start, stop)
        node[start:stop] += n_nodes
        n_nodes = int(node[start:stop].max()) + 1

    def edges() -> Iterator[Pairs]:
        for part in store.read_bundles([f"{EDGES}/{block:05d}" for block in range(blocks.count)]):
            yield part["sources"], part["targets"]
        yield links.rows, links.neighbors

    return CondensedGraph(node, n_nodes, edges)


def condensed_bytes(*, n: int, k: int, nodes: int) -> int:
    """Bytes of a task with a `condensed_graph`: the larger of joined nodes and weak components of points."""
    edges = min(n * k, max(EDGES_AT_ONCE, nodes // 4))
    return task_costs.TASK_BYTES + max(4 * n + 100 * nodes + 60 * edges, 36 * n + 16 * nodes)


# --- links between the components (graph.components: connect), before the graph is analysed


def link_steps(config: Config, layout: Layout, nodes: int) -> Generator[Step[Report], list[Report], bool]:
    """components -> connect, if there are several; returns whether links were written. `nodes`: of the graph."""
    n, m, blocks = layout.n_points, config.eigensolver.n_components, layout.blocks
    label = task(label_components, blocks=blocks)
    n_bytes = condensed_bytes(n=n, k=layout.k_max, nodes=nodes)
    bundles, expected = {f"{LABELS}.npz": disk_costs.per_point(n=n, blocks=1, numbers=1)}, Components(1, 0)
    [components] = yield from Step(
        "mend_graph.components", label, 1, n_bytes, bundles=bundles, expected=lambda b: expected, runs_on=WHOLE_DATA
    )
    if components.components == 1:
        return False
    n_candidates = min(components.outside, components.components * most_candidates(components.components))
    row, d = layout.row_bytes, layout.n_features
    connect = task(connect_components, blocks=blocks)
    n_bytes = task_costs.TASK_BYTES + 12 * n + 72 * components.outside
    n_bytes += blocks.size * (3 * row + 64) + task_costs.tree_bytes(blocks.size, d) + 2 * task_costs.SCORE_BYTES
    n_bytes += n_candidates * (2 * row + 32 * d + 400) + task_costs.tree_bytes(n_candidates, d)
    bundles = {f"{LINKS}.npz": disk_costs.per_point(n=2 * components.components, blocks=1, numbers=3)}
    work = Work(0.1 + search_among_all(n_candidates, n + 10 * n_candidates, d))
    advice = f"set graph.components: separate, which embeds each component by its {m} own coordinates"
    step = Step("mend_graph.connect", connect, 1, n_bytes, bundles=bundles, runs_on=WHOLE_DATA, work=work, version=2)
    yield from replace(step, advice=advice)
    return True


@dataclass(frozen=True)
class Components(Report):
    """Number of components, and points outside the largest one."""

    components: int
    outside: int


@dataclass(frozen=True)
class Connected(Report):
    components_joined: int
    links_added: int
    longest_link: float


def label_components(store: Store, block_index: int, blocks: Blocks) -> Components:
    """Component of each point, largest first; a report without links where there is only one."""
    n_components, component = condensed_graph(store, blocks).weak_components()
    store.write_bundle(LABELS, component=component)
    return Components(n_components, int((component > 0).sum()))


def connect_components(store: Store, block_index: int, blocks: Blocks) -> Connected:
    """Short links that join all components; the shortest where they have few points."""
    component = store.read_bundle(LABELS)["component"]
    ids = candidates(component)
    points = store.gather(array_specs.POINTS.name, ids).astype(np.float64)
    nearest, distances = _nearest(store, blocks, component, ids, np.zeros(len(ids), np.int64))
    links, lengths = spanning_links(points, ids, component[ids].astype(np.int64), nearest, distances)
    if len(ids) < np.count_nonzero(component):
        links, lengths = _shortened(store, blocks, component, links, lengths)
    edges = as_edges(links, lengths)
    store.write_bundle(LINKS, **edges._asdict())
    n_joined, longest = int(component.max()) + 1, float(lengths.max())
    limit = "" if n_joined == 2 else " or less"
    message = f"graph: {n_joined} components joined by {counted(n_joined - 1, 'link')} of length {longest:.3g}{limit}"
    return Connected(n_joined, n_joined - 1, longest, message=message)


def _shortened(store: Store, blocks: Blocks, component: Ints, links: Int64, lengths: Float64) -> tuple[Int64, Float64]:
    """Links (l, 2) whose ends are the nearest points of their components to each other; their lengths (l,).

    Each end by turns becomes the nearest point of its component to the other end, until no link becomes shorter, or
    MOST_PASSES times. Each time all points are read.
    """
    links, lengths, end, unchanged = links.copy(), lengths.copy(), 1, 0
    for _ in range(MOST_PASSES):
        if unchanged == 2:
            break
        found, distances = _nearest(store, blocks, component, links[:, 1 - end], component[links[:, end]])
        is_shorter = distances < lengths * (1 - TIE)
        links[is_shorter, end], lengths[is_shorter] = found[is_shorter], distances[is_shorter]
        end, unchanged = 1 - end, 0 if is_shorter.any() else unchanged + 1
    return links, lengths


def _nearest(store: Store, blocks: Blocks, component: Ints, ids: Int64, wanted: Ints) -> tuple[Int64, Float64]:
    """For points (q,), the nearest point of the component `wanted` (q,) of each, and its distance."""
    unique, position = np.unique(ids, return_inverse=True)
    points, lists = store.gather(array_specs.POINTS.name, unique)[position], empty_lists(len(ids), 1)
    for start, stop in map(blocks.rows, range(blocks.count)):
        block, of_block = None, component[start:stop]
        for label in np.intersect1d(of_block, wanted):
            block = store.read(array_specs.POINTS.name, start, stop) if block is None else block
            rows, queries = np.flatnonzero(of_block == label), np.flatnonzero(wanted == label)
            for first in range(0, len(queries), POINTS_AT_ONCE):
                part = queries[first : first + POINTS_AT_ONCE]
                found = exact_neighbors(points[part], ids[part], block[rows], start + rows, 1)
                merge_into(lists, part, found, ids)
    return lists.ids[:, 0], lists.distances[:, 0]


def stored_lists(store: Store, blocks: Blocks, place: str, longest: int, links: Edges) -> Lists:
    """The lists of a round with the links; `longest` is the length of the longest without them."""

    def searched(start: int, stop: int) -> tuple[Ints, Float32]:
        indices, distances = (store.read(name, start, stop) for name in list_names(place))
        return indices, distances

    lists = Lists(blocks.n, blocks.size, searched, longest)
    if not len(links.rows):
        return lists
    width = longest_with(lists, links.rows)
    return lists._replace(read=lambda a, b: apply_repair(*searched(a, b), a, links, width), longest=width)


def read_links(store: Store) -> Edges:
    links = store.read_bundle(LINKS)
    return Edges(links["rows"].astype(np.int32), links["neighbors"].astype(np.int32), links["distances"])
