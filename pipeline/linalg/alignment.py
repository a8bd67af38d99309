"""Rotate a new embedding onto an earlier one, over the rows that both have, so that coordinates stay comparable.

The earlier embedding comes from another run's store, from the published version, or from this store. In this store it
is the array `embedding`, until the step `write` replaces it. A run killed during `write` leaves that array incomplete,
so the step `align` saves a copy first. The copy is also used after an eigensolve that did not converge.

Eigenvectors are determined up to a sign, and those of (nearly) equal eigenvalues up to a rotation among themselves. So
the coordinates of an embedding may rotate although the points have hardly moved. A rotation preserves all distances,
the covariance of coordinates of unit covariance, and the space spanned by the eigenvectors.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.linalg import orthogonal_procrustes

from ..config.models import Config
from ..core.arrays import Float64, Int32
from ..core.errors import ConfigError, CorruptChunk
from ..engine import checkpoint, current_config, disk_costs, task_costs
from ..engine.plan import Layout
from ..engine.step import WHOLE_DATA, Json, Report, Resource, Step, task
from ..storage import array_specs
from ..storage.store import Store, fitted_store, read_elsewhere
from ..storage.versions import Versions, published_url
from .preprocess import Transform

PREVIOUS, ROTATION, PRINCIPAL = "_previous/embedding", "_work/rotation", "_work/principal"
EMBEDDED = "_work/embedding"
"""Bundle in internal order, the last one that `write` writes; it records whether the eigenpairs converged."""
DETERMINED = 1e-6
"""Relative to the largest singular value of new' previous; with a smaller one the rotation is not determined."""


class EarlierEmbedding(NamedTuple):
    """An earlier embedding in the order of its input."""

    embedding: Float64
    """(rows, m)"""
    component: Int32
    """(rows,) component of each row, -1 = not embedded"""
    hashes: npt.NDArray[np.uint64]
    """(rows, 2) hashes of the input rows"""


def previous_store(config: Config) -> str | None:
    """URL of the store that `embedding.align` names; None without that key, or if no version has an embedding."""
    named = config.embedding.align
    if named is None:
        return None
    if named != "previous":
        store = Store(published_url(named))
        return fitted_store(store).url if store.is_readable() else store.url
    if config.output.keep is None:
        return config.output.store
    root = Versions(config.output.store)
    versions = map(root.open, root.history())
    return next((store.url for store in versions if _written(store)), None)  # a damaged version is skipped


def align_step(config: Config, layout: Layout, n_graph: int, scale: str) -> "Step[Alignment]":
    """The step before `write`. Raises ConfigError if `embedding.align` names a store without a finished embedding.

    The state of another store is part of the step's identity. The earlier embedding of this store is not: it changes
    with every run, and the rotation is computed once for each new solution.
    """
    url, m = previous_store(config), config.eigensolver.n_components
    previous = None if url is None or Store(url).url == Store(config.output.store).url else url
    aligned = task(align_components, n_components=m, n_graph=n_graph, scale=scale, previous=previous)
    key, state, n_rows = "solve_embedding.align", {}, layout.n_input
    if previous is not None:
        state = _state_of(previous)
        n_rows = max(n_rows, Store(previous).array(array_specs.EMBEDDING.name).shape[0])
    n_bytes = task_costs.TASK_BYTES + 8 * layout.n_points * (4 * m + 4) + n_rows * (24 * m + 100)
    bundles = {f"{ROTATION}.npz": disk_costs.files(1, 8 * n_graph * m * m)}
    return Step(key, aligned, 1, n_bytes, bundles=bundles, input_state=state, runs_on=WHOLE_DATA)


@dataclass(frozen=True)
class Alignment(Report):
    """The earlier embedding, its rows, and the result for each component.

    `reason` is set if nothing could be aligned.
    """

    previous: str
    scale: str
    rows: int
    components: list[Json]
    reason: str


def state_of_other(config: Config) -> Json:
    """Identity of the run that `embedding.align` names; {} if it names none, or 'previous'."""
    return {} if config.embedding.align in {None, "previous"} else _state_of(str(previous_store(config)))


def _written(store: Store) -> checkpoint.StepRecord | None:
    """The record of a finished embedding; None if the store has none, or if it did not converge."""
    record = None
    for key in ("solve_embedding.solve", "solve_embedding.write"):
        record = current_config.current_record(store, key) if store.is_run() else None
        if record is None or len(checkpoint.finished_blocks(store, key, record.fingerprint)) < record.n_blocks:
            return None  # a component that did not converge has no marker
    return record


def _state_of(url: str) -> Json:
    store = Store(url)
    try:
        store.require_run()
    except ConfigError as error:
        raise ConfigError(f"embedding.align: expected the store of a finished run. {error}") from None
    if (record := _written(store)) is None:
        raise ConfigError(
            f"embedding.align: expected the store of a finished run, found none whose eigenpairs converged at {url}; "
            f"give its path or URL, or 'previous' for the last embedding of output.store"
        )
    return {"previous": record.fingerprint, "begun": record.begun}


def align_components(
    store: Store, block_index: int, n_components: int, n_graph: int, scale: str, previous: Resource[str | None]
) -> Alignment:
    """Rotate each component onto the earlier embedding; without an earlier embedding the rotation is the identity."""
    earlier = _saved_embedding(store) if previous is None else _embedding_of(Store(previous))
    rotations = np.tile(np.eye(n_components), (n_graph, 1, 1))
    rows, components, reason = 0, list[Json](), ""
    if earlier is None:
        reason = "no earlier embedding"
    elif earlier.embedding.shape[1] != n_components:
        reason = f"the earlier embedding has {earlier.embedding.shape[1]} coordinates, this one {n_components}"
    else:
        rows = len(earlier.embedding)
        earlier = _in_this_order(earlier, store.read_all(array_specs.ROW_HASH.name))
        for number in range(n_graph):
            component_report, rotations[number] = _align_component(store, number, earlier, scale)
            components.append(component_report)
    store.write_bundle(ROTATION, rotations=rotations)
    return Alignment(previous or "this store", scale, rows, components, reason)


def _in_this_order(earlier: EarlierEmbedding, hashes: npt.NDArray[np.uint64]) -> EarlierEmbedding:
    """The earlier embedding of the rows with these hashes (n, 2); a row that it does not have has no component.

    Rows are found by their values: they have other positions if others were removed, and in other samples.
    """
    order = np.argsort(earlier.hashes[:, 0])
    places = np.searchsorted(earlier.hashes[order, 0], hashes[:, 0])
    rows = order[np.minimum(places, len(order) - 1)]
    is_shared = (earlier.hashes[rows] == hashes).all(axis=1)
    return EarlierEmbedding(earlier.embedding[rows], np.where(is_shared, earlier.component[rows], -1), hashes)


def _align_component(store: Store, number: int, earlier: EarlierEmbedding, scale: str) -> tuple[Json, Float64]:
    """One component against the earlier component that shares most of its points.

    `size_ratio` is the norm of the new coordinates of the shared points over the norm of the earlier ones. With scale
    `unit_norm` it falls with every added point, and the residuals contain this change of size too.
    """
    part = store.read_bundle(f"_work/eigen/{number:05d}")
    original = store.gather(array_specs.ORIGINAL_INDEX.name, part["rows"])
    shared_rows = np.flatnonzero(earlier.component[original] >= 0)
    shared = earlier.component[original[shared_rows]]
    report: Json = {
        "component": number,
        "previous_component": None,
        "rows_shared": 0,
        "size_ratio": None,
        "residual_before": None,
        "residual_after": None,
        "rotation": None,
    }
    vectors = part["vectors"]
    identity = np.eye(vectors.shape[1])
    if not len(shared):
        return report, identity
    common = int(np.bincount(shared).argmax())
    rows = shared_rows[shared == common]
    report |= {"previous_component": common, "rows_shared": len(rows)}
    new = vectors[rows] * coordinate_scale(scale, len(part["rows"]))
    previous = earlier.embedding[original[rows]]
    if (aligned := align(new, previous)) is None:
        return report, identity
    report |= {
        "size_ratio": float(np.linalg.norm(new) / np.linalg.norm(previous)),
        "residual_before": aligned.residual_before,
        "residual_after": aligned.residual_after,
        "rotation": aligned.rotation.tolist(),
    }
    return report, aligned.rotation


class Rotation(NamedTuple):
    """The rotation onto the previous coordinates, and the difference before and after it."""

    rotation: Float64
    """(m, m) orthogonal (determinant 1 or -1): new @ rotation is nearest to previous."""
    residual_before: float
    """||new - previous|| / ||previous||, Frobenius norms."""
    residual_after: float
    """||new @ rotation - previous|| / ||previous||."""


def align(new: Float64, previous: Float64) -> Rotation | None:
    """The orthogonal R that minimises ||new R - previous|| for coordinates (r, m) of the same r points.

    About the origin, because embeddings are centred and a translation would change that. None if the points do not
    determine R: fewer than m points, or unrelated coordinates.
    Source: Schoenemann 1966 (Psychometrika 31), as implemented by SciPy.

    >>> turn = np.array([[0.0, 1.0], [-1.0, 0.0]])
    >>> previous = np.array([[1.0, 0.0], [0.0, 2.0], [-1.0, -2.0]])
    >>> alignment = align(previous @ turn.T, previous)
    >>> np.allclose(alignment.rotation, turn), round(alignment.residual_after, 12)
    (True, 0.0)
    """
    if len(new) == 0 or np.linalg.matrix_rank(new.T @ previous, rtol=DETERMINED) < new.shape[1]:
        return None
    rotation: Float64 = np.asarray(orthogonal_procrustes(new, previous)[0], np.float64)
    size = np.linalg.norm(previous)
    before, after = (float(np.linalg.norm(turned - previous) / size) for turned in (new, new @ rotation))
    return Rotation(rotation, before, after)


def principal_map(store: Store) -> Transform:
    """From points of a run by pca to coordinates: the projection on its components, with the rotation of `align`."""
    bundle = store.read_bundle(PRINCIPAL)
    mean, components = bundle["mean"], bundle["components"]
    if store.has_bundle(ROTATION):
        components = store.read_bundle(ROTATION)["rotations"][0].T @ components
    return Transform(mean, np.ones(len(mean)), np.zeros(len(mean)), components)


def coordinate_scale(scale: str, n_points: int) -> float:
    """Factor from the unit eigenvectors of a component of n_points points to its coordinates."""
    return float(np.sqrt(n_points)) if scale == "unit_covariance" else 1.0


def _embedding_of(store: Store) -> EarlierEmbedding | None:
    with read_elsewhere(store):
        return _read(store, array_specs.ROW_HASH)


def _saved_embedding(store: Store) -> EarlierEmbedding | None:
    """The embedding of the last `write`; the saved copy if that one is incomplete or did not converge."""
    try:
        converged = bool(store.read_bundle(EMBEDDED).get("converged", True))
        earlier = _read(store, array_specs.EMBEDDED_HASH) if converged else None
    except CorruptChunk:
        earlier = None
    if earlier is not None:
        store.write_bundle(PREVIOUS, **earlier._asdict())
        return earlier
    try:
        return EarlierEmbedding(**store.read_bundle(PREVIOUS))
    except CorruptChunk:  # usually there is no copy
        return None


def _read(store: Store, hashes: array_specs.ArraySpec) -> EarlierEmbedding | None:
    """The embedding in a store; None if there is none. Raises CorruptChunk if a part of it is missing."""
    names = [spec.name for spec in (array_specs.EIGENVALUES, array_specs.EMBEDDING, array_specs.COMPONENT, hashes)]
    if not all(map(store.has_array, names)):
        return None
    _, *arrays = map(store.read_all, names)  # `write` writes the eigenvalues last
    return EarlierEmbedding(*arrays)
