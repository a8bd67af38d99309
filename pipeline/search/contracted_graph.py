"""The neighbour graph of a run, whose blocks are contracted on the workers: a step, and what reads its result."""

from collections.abc import Generator, Iterator
from dataclasses import dataclass

import numpy as np

from ..engine import disk_costs, task_costs
from ..engine.plan import Layout
from ..engine.step import Report, Step, Work, task
from ..kernels.graph.connectivity import Edges
from ..kernels.graph.contraction import EDGES_AT_ONCE, CondensedGraph, Pairs, contract
from ..storage import array_specs
from ..storage.array_specs import PlannedArray
from ..storage.blocks import Blocks
from ..storage.store import Store
from .cell_groups import list_names

EDGES = "_work/node_edges"
NO_EDGES = Edges(np.zeros(0, np.int32), np.zeros(0, np.int32), np.zeros(0, np.float32))
EXPECTED_NODES = 0.5
"""Nodes for each point that a plan assumes."""


@dataclass(frozen=True)
class Nodes(Report):
    """Nodes of a block, and the length of its longest list."""

    nodes: int
    longest: int


def contract_step(layout: Layout) -> Generator[Step[Report], list[Report], Nodes]:
    """contract: the strong components of each block by its own edges; returns all nodes, and the longest list."""
    n, k, blocks = layout.n_points, layout.k_max, Blocks(layout.n_points, layout.block_points)
    nodes = yield from Step(
        "mend_graph.contract",
        task(contract_block, blocks=blocks, place=layout.lists),
        blocks.count,
        task_costs.TASK_BYTES + 64 * blocks.size * (k + 1),
        arrays=(PlannedArray(array_specs.POINT_NODE, (n,), "int32", blocks.size),),
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
    """The graph of all blocks and of the links."""
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
