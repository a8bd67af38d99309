"""The stages of each method, in running order."""

from collections.abc import Callable
from functools import partial
from importlib import import_module

from ..config.models import Config
from ..engine.plan import Layout, Stage, Steps

StageOfConfig = Callable[[Config, Layout], Steps]


def _steps(module: str, config: Config, layout: Layout) -> Steps:
    """The generator `steps` of a stage's module, which is imported when the stage starts, not when it is listed."""
    stage: StageOfConfig = import_module(f".{module}", __package__).steps
    return stage(config, layout)


STAGES: dict[str, StageOfConfig] = {
    name: partial(_steps, name)
    for name in (
        "ingest",
        "order_points",
        "find_neighbors",
        "mend_graph",
        "solve_weights",
        "assemble_cost",
        "solve_embedding",
        "measure_quality",
        "write_report",
    )
}


def stages_of_run(config: Config) -> dict[str, Stage]:
    stages = stages_of(config.method, config.output.cost_matrix)
    return {name: partial(stage, config) for name, stage in stages.items()}


def stages_of(method: str, cost_matrix: bool = True) -> dict[str, StageOfConfig]:
    """The stages of a method. The stage between graph and M depends on the method; pca has no M, and
    without `cost_matrix` (`output.cost_matrix`) no method computes it."""
    local = partial(_steps, "laplacian_factors" if method == "laplacian" else "local_factors")
    stages: dict[str, StageOfConfig] = {}
    for name, stage in STAGES.items():
        if name == "solve_weights" and method != "lle":
            stages |= {} if method == "pca" else {"local_factors": local}
        elif name != "assemble_cost" or (method != "pca" and cost_matrix):
            stages[name] = stage
    return stages
