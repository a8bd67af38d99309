"""Find the earlier version that a run can extend after rows were appended: its cells, order and neighbour lists.

Neighbour lists can be kept if every setting that determines them is unchanged. Row hashes, compared after reading, show
whether the old rows are an unchanged prefix of the new input (`update_lists.find_kept`).
"""

from dataclasses import replace
from typing import Any

from ...config.load import resolved
from ...config.models import Config
from ...core.machine import versions
from ...engine import checkpoint
from ...engine.plan import Earlier, Layout
from ...engine.plan_sizes import index_dtype, neighbor_method
from ...storage import array_specs
from ...storage.locate import is_id
from ...storage.store import Store, block_of, read_elsewhere
from ..cell_groups import FIRST, KEPT_CELLS

AFTER_THE_SEARCH = {"min_recall", "max_overlap", "reverse"}
"""Keys of `neighbors` that have no effect before the recall of the lists is measured."""


def extended_layout(config: Config, layout: Layout, base: Store) -> tuple[Layout, str]:
    """(layout, reason). If the run extends the version, the layout has its blocks; else the reason, if there is one.

    Raises StoreError if the records of the version are damaged.
    """
    if not checkpoint.is_complete(base) or not base.has_array(array_specs.RAW.name):
        return layout, ""
    with read_elsewhere(base):
        size = block_of(base.array(array_specs.RAW.name))
        block_points = config.execution.block_points
        is_flexible = (
            block_points == "auto" or block_points >= layout.n_input
        )  # the block size is not fixed: it grows with the input
        fits = is_flexible and size <= layout.block_points
        trial = replace(layout, block_points=size) if fits else layout
        earlier, reason = find_earlier(config, trial, base)
    return (layout, reason) if earlier is None else (replace(trial, earlier=earlier), "")


def find_earlier(config: Config, layout: Layout, base: Store) -> tuple[Earlier | None, str]:
    """(the version to extend or None, the reason if a user may expect an extension)."""
    if config.output.max_appended == 0 or config.varies or config.neighbors.precomputed is not None:
        return None, ""
    steps = checkpoint.recorded_steps(base)
    if ("mend_graph", "apply") not in steps or not _same_settings(config, base):
        return None, ""
    earlier, is_extended = _describe(base, steps), ("order_points", "keep_cells") in steps
    if layout.n_input < earlier.n_input:
        return None, (
            f"the input has {layout.n_input:,} rows, {earlier.n_input - layout.n_input:,} fewer than version "
            f"{earlier.version}: all points are searched again"
        )
    if not _same_arrays(layout, base) or layout.n_input < earlier.n_input + (not is_extended):
        return None, ""
    if _method(config, layout, layout.n_input) != _method(config, layout, earlier.n_points):
        return None, ""
    appended = earlier.n_points + layout.n_input - earlier.n_input - earlier.n_searched
    if appended > config.output.max_appended * earlier.n_searched:
        return None, (
            f"up to {appended:,} points are new since {earlier.n_searched:,} were searched together, more than "
            f"output.max_appended {config.output.max_appended:g} of them: all points are searched again"
        )
    return _origin(base) if is_extended and layout.n_input == earlier.n_input else earlier, ""


def _origin(base: Store) -> Earlier:
    """The version that a version extended: with unchanged rows, every finished step is copied from the source store.

    Its url is empty if that version no longer exists.
    """
    origin = Earlier(**base.attributes()["built_on"])
    origin_store = Store(f"{base.url.rsplit('/', 1)[0]}/{origin.version}") if is_id(origin.version) else None
    return replace(
        origin, url=origin_store.url if origin_store is not None and checkpoint.is_complete(origin_store) else ""
    )


def _same_settings(config: Config, base: Store) -> bool:
    """Whether preprocessing, search and program version equal those of a version."""
    attributes = base.attributes()
    old, new = attributes["config"], resolved(config)
    name = "lle-pipeline"
    return bool(
        attributes["versions"].get(name) == versions().get(name)
        and old["preprocess"] == new["preprocess"]
        and _search(old) == _search(new)
        and (old["method"] == "pca") == (new["method"] == "pca")
    )


def _search(config: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in config["neighbors"].items() if key not in AFTER_THE_SEARCH}


def _same_arrays(layout: Layout, base: Store) -> bool:
    """Whether blocks, features and dtypes equal those of a version, so that its chunks can be copied unchanged."""
    raw, points, lists = (
        base.array(spec.name) for spec in (array_specs.RAW, array_specs.POINTS, array_specs.KNN_INDICES)
    )
    return bool(
        raw.shape[1] == layout.n_features_input and raw.dtype == layout.dtype
        and block_of(points) == block_of(raw) == layout.block_points and lists.dtype == index_dtype(layout.n_input)
    )  # fmt: skip


def _method(config: Config, layout: Layout, n_points: int) -> str:
    return neighbor_method(config.neighbors.method, n_points, config.preprocess.pca or layout.n_features_input)


def _describe(base: Store, steps: dict[tuple[str, str], Any]) -> Earlier:
    rounds = [int(name.removeprefix("merge_")) for stage, name in steps
              if stage == "mend_graph" and name.removeprefix("merge_").isdigit()]  # fmt: skip
    is_extended, nearest = ("order_points", "keep_cells") in steps, base.array(array_specs.NEAREST_CELLS.name)
    earlier = Earlier(
        url=base.url, version=base.url.rsplit("/", 1)[1], n_input=base.array(array_specs.RAW.name).shape[0],
        n_points=nearest.shape[0], n_searched=nearest.shape[0], n_cells=0, n_nearest=nearest.shape[1],
        lists=f"{FIRST}/overlap_{max(rounds)}" if rounds else FIRST, generations=0,
    )  # fmt: skip
    if not is_extended:
        return replace(earlier, n_cells=base.array(array_specs.CELL_COUNTS.name).shape[1])
    kept_cells = base.read_bundle(KEPT_CELLS)
    counts, generations = kept_cells["counts"], int(kept_cells["generations"])
    return replace(earlier, n_searched=int(counts.sum()), n_cells=len(counts), generations=generations)
