"""Layouts, plans and planned arrays without a run."""

from lle.config.models import Config
from lle.engine import plan
from lle.engine.plan import Layout
from lle.engine.step import Report, Step
from lle.stages.registry import stages_of_run
from lle.storage.array_specs import ArraySpec, PlannedArray


def config_of(**sections) -> Config:
    data = {"input": {"kind": "synthetic", "name": "swiss_roll", "n_points": 100_000}, "output": {"store": "x.zarr"}}
    return Config.model_validate({**data, **sections})


def make_layout(config: Config, n: int = 100_000, d: int = 3, block: int = 8192) -> Layout:
    if config.input.name == "digits":
        return Layout(n_input=1797, n_features_input=64, dtype="float64", block_points=512, label_width=1)
    return Layout(n_input=n, n_features_input=d, dtype="float64", block_points=block, label_width=2)


def walk_all(config: Config, layout: Layout) -> tuple[list[Step[Report]], Layout]:
    """All steps of a plan and its last layout."""
    return plan.planned(stages_of_run(config), layout)


def planned(name: str, shape: tuple[int, ...], dtype: str, block: int, parts: int = 0) -> PlannedArray:
    spec = ArraySpec(name, ("point", "feature")[: len(shape)], dtype, "for a test", "metres", parts)
    return PlannedArray(spec, shape, dtype, block)
