"""The stages of each method, in running order."""

from pipeline.engine.plan import Stage
from pipeline.stages import (
    assemble_cost,
    find_neighbors,
    ingest,
    laplacian_factors,
    local_factors,
    measure_quality,
    mend_graph,
    order_points,
    solve_embedding,
    solve_weights,
    write_report,
)
from pipeline.storage import array_specs

STAGES: dict[str, Stage] = {
    "ingest": ingest.steps,
    "order_points": order_points.steps,
    "find_neighbors": find_neighbors.steps,
    "mend_graph": mend_graph.steps,
    "solve_weights": solve_weights.steps,
    "assemble_cost": assemble_cost.steps,
    "solve_embedding": solve_embedding.steps,
    "measure_quality": measure_quality.steps,
    "write_report": write_report.steps,
}


METHOD_ARRAYS = (
    array_specs.WEIGHTS.name, array_specs.RECONSTRUCTION_ERROR.name, array_specs.DEGREE.name,
    array_specs.LOCAL_FACTORS, array_specs.COST_MATRIX,
    array_specs.SEARCHED_INDICES.name, array_specs.SEARCHED_DISTANCES.name, array_specs.K_PER_POINT.name,
)  # fmt: skip


def stages_of(method: str) -> dict[str, Stage]:
    """The stages of a method in their order: what comes between the graph and M is its own, and pca has no M."""
    own: dict[str, Stage] = {"local_factors": laplacian_factors.steps if method == "laplacian" else local_factors.steps}
    stages: dict[str, Stage] = {}
    for name, stage in STAGES.items():
        if name == "solve_weights" and method != "lle":
            stages |= {} if method == "pca" else own
        elif name != "assemble_cost" or method != "pca":
            stages[name] = stage
    return stages
