"""Coordinates for the rows of components that are too small to be embedded: those of their nearest embedded points."""

import numpy as np
import numpy.typing as npt

from ..config.models import Config
from ..engine import disk_costs
from ..engine.plan import Decides, Layout, Report, Runs, Step, Writes
from ..engine.plan_sizes import max_boxes
from ..kernels.factors.lle_weights import barycenter_weights
from ..kernels.out_of_sample import of_one_component
from ..storage import array_specs
from ..storage.blocks import Blocks
from ..storage.store import Store
from .among_stored import halo_rows, nearest_points, nearest_points_bytes

PLACED, PLACED_COMPONENT = "_work/placed", -2
"""Rows of components that are too small to be embedded: their bundles, and their label in the array `component`."""
PLACE_REG = 1e-3
"""Regularisation of the weights that place them (Saul & Roweis 2003, section 6.1)."""


def place_step(config: Config, layout: Layout, n_graph: int) -> Step:
    n, k, blocks = layout.n_points, config.neighbors.n_neighbors, Blocks(layout.n_points, layout.block_points)
    halo = halo_rows(layout.row_bytes)
    boxes = max_boxes(layout.n_cells, layout.point_blocks())
    search_bytes = nearest_points_bytes(rows=blocks.size, row=layout.row_bytes, d=layout.n_features, k=k, halo=halo)
    return Step(
        "solve_embedding",
        "place",
        place_block,
        layout.point_blocks(),
        Decides({"n_graph": n_graph, "n_neighbors": k, "blocks": blocks}),
        Runs(search_bytes + boxes * (64 * layout.n_features + 32)),
        Writes(bundles=(PLACED,), bundle_bytes=disk_costs.per_point(n=n, blocks=layout.point_blocks(), numbers=2 * k)),
        expected=lambda b: {"placed": 0},
    )


def place_block(store: Store, block_index: int, n_graph: int, n_neighbors: int, blocks: Blocks) -> Report:
    """Nearest embedded points, and their weights, of the points of a block whose component is not embedded."""
    start, stop = blocks.rows(block_index)
    rows = start + np.flatnonzero(store.read(array_specs.POINT_COMPONENT.name, start, stop) >= n_graph)
    if len(rows):
        points = store.gather(array_specs.POINTS.name, rows).astype(np.float64)
        lists = nearest_points(store, points, n_neighbors, n_graph)
        needed, positions = np.unique(np.maximum(lists.ids, 0), return_inverse=True)
        positions = positions.reshape(lists.ids.shape)
        component = store.gather(array_specs.POINT_COMPONENT.name, needed)
        valid = of_one_component(lists.ids, component[positions])
        neighbors = store.gather(array_specs.POINTS.name, needed)[positions]
        weights = barycenter_weights(points, neighbors, valid, PLACE_REG, "trace").weights
        store.write_bundle(f"{PLACED}/{block_index:05d}", rows=rows, neighbors=lists.ids, weights=weights)
    return {"placed": len(rows)}


def place_rows(store: Store, embedding: npt.NDArray[np.float64], component: npt.NDArray[np.int32]) -> None:
    """Coordinates of the points (n, m) in small components, in place: weighted sums of those of their neighbours."""
    for name in store.objects.names(PLACED):
        part = store.read_bundle(name.removesuffix(".npz"))
        neighbors = embedding[np.maximum(part["neighbors"], 0)]
        embedding[part["rows"]] = np.einsum("bk,bkm->bm", part["weights"], neighbors)
        component[part["rows"]] = PLACED_COMPONENT
