"""Which earlier version a run may build on where rows were only appended since: its cells, order and neighbour lists.

What counts is all that decided them then and would decide them now. Whether its rows are the first of today's input,
and unchanged, only the hashes tell, once they are read (`update_lists.find_kept`).
"""

from dataclasses import replace
from typing import Any

from pipeline.config.models import Config, resolved
from pipeline.core.machine import versions
from pipeline.engine import checkpoint
from pipeline.engine.plan import Earlier, Layout, index_dtype, neighbor_method
from pipeline.search.cell_groups import FIRST, KEPT_CELLS
from pipeline.storage import array_specs
from pipeline.storage.locate import is_id
from pipeline.storage.store import Store, block_of, read_elsewhere

AFTER_THE_SEARCH = {"min_recall", "max_overlap", "reverse"}
"""Keys of `neighbors` that decide nothing before the recall of the lists is measured."""


def begun(config: Config, layout: Layout, donor: Store) -> tuple[Layout, str]:
    """(the layout, in blocks of the version it builds on if it does; why it does not, where one may expect it to).

    Raises StoreError where what has to be known of the version is damaged.
    """
    if not checkpoint.is_whole(donor) or not donor.has_array(array_specs.RAW.name):
        return layout, ""
    with read_elsewhere(donor):
        size = block_of(donor.array(array_specs.RAW.name))
        wanted = config.execution.block_points
        follows = wanted == "auto" or wanted >= layout.n_input  # as large as the input, which grows
        fits = follows and size <= layout.block_points
        trial = replace(layout, block_points=size) if fits else layout
        earlier, why = find_earlier(config, trial, donor)
    return (layout, why) if earlier is None else (replace(trial, earlier=earlier), "")


def find_earlier(config: Config, layout: Layout, donor: Store) -> tuple[Earlier | None, str]:
    """(what there is to build on in a finished version, or None; why there is nothing, where one may expect it)."""
    if config.output.max_appended == 0 or config.varies or config.neighbors.precomputed is not None:
        return None, ""
    steps = checkpoint.recorded_steps(donor)
    if ("mend_graph", "apply") not in steps or not _decided_alike(config, donor):
        return None, ""
    earlier, grown = _describe(donor, steps), ("order_points", "keep_cells") in steps
    if layout.n_input < earlier.n_input:
        return None, (
            f"the input has {layout.n_input:,} rows, {earlier.n_input - layout.n_input:,} fewer than version "
            f"{earlier.version}: all points are searched again"
        )
    if not _same_arrays(layout, donor) or layout.n_input < earlier.n_input + (not grown):
        return None, ""
    if _method(config, layout, layout.n_input) != _method(config, layout, earlier.n_points):
        return None, ""
    appended = earlier.n_points + layout.n_input - earlier.n_input - earlier.n_searched
    if appended > config.output.max_appended * earlier.n_searched:
        return None, (
            f"up to {appended:,} points are new since {earlier.n_searched:,} were searched together, more than "
            f"output.max_appended {config.output.max_appended:g} of them: all are searched again"
        )
    return _origin(donor) if grown and layout.n_input == earlier.n_input else earlier, ""


def _origin(donor: Store) -> Earlier:
    """What a version was built on: with as many rows again every step that stays is taken over whole from the donor.

    Its url is empty where that is gone.
    """
    origin = Earlier(**donor.attributes()["built_on"])
    there = Store(f"{donor.url.rsplit('/', 1)[0]}/{origin.version}") if is_id(origin.version) else None
    return replace(origin, url=there.url if there is not None and checkpoint.is_whole(there) else "")


def _decided_alike(config: Config, donor: Store) -> bool:
    """Whether preprocessing, search and program are those of a version."""
    attributes = donor.attributes()
    then, now = attributes["config"], resolved(config)
    name = "lle-pipeline"
    return bool(
        attributes["versions"].get(name) == versions().get(name)
        and then["preprocess"] == now["preprocess"]
        and _search(then) == _search(now)
        and (then["method"] == "pca") == (now["method"] == "pca")
    )


def _search(config: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in config["neighbors"].items() if key not in AFTER_THE_SEARCH}


def _same_arrays(layout: Layout, donor: Store) -> bool:
    """Whether blocks, features and number types are those of a version, so that its chunks can be taken as they are."""
    raw, points, lists = (
        donor.array(spec.name) for spec in (array_specs.RAW, array_specs.POINTS, array_specs.KNN_INDICES)
    )
    return bool(
        raw.shape[1] == layout.n_features_input and raw.dtype == layout.dtype
        and block_of(points) == block_of(raw) == layout.block_points and lists.dtype == index_dtype(layout.n_input)
    )  # fmt: skip


def _method(config: Config, layout: Layout, n_points: int) -> str:
    return neighbor_method(config.neighbors.method, n_points, config.preprocess.pca or layout.n_features_input)


def _describe(donor: Store, steps: dict[tuple[str, str], Any]) -> Earlier:
    rounds = [int(name.removeprefix("merge_")) for stage, name in steps
              if stage == "mend_graph" and name.removeprefix("merge_").isdigit()]  # fmt: skip
    grown, nearest = ("order_points", "keep_cells") in steps, donor.array(array_specs.NEAREST_CELLS.name)
    found = Earlier(
        url=donor.url, version=donor.url.rsplit("/", 1)[1], n_input=donor.array(array_specs.RAW.name).shape[0],
        n_points=nearest.shape[0], n_searched=nearest.shape[0], n_cells=0, n_nearest=nearest.shape[1],
        lists=f"{FIRST}/overlap_{max(rounds)}" if rounds else FIRST, generations=0,
    )  # fmt: skip
    if not grown:
        return replace(found, n_cells=donor.array(array_specs.CELL_COUNTS.name).shape[1])
    kept = donor.read_bundle(KEPT_CELLS)
    counts, generations = kept["counts"], int(kept["generations"])
    return replace(found, n_searched=int(counts.sum()), n_cells=len(counts), generations=generations)
