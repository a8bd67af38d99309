"""metrics.json of a run as one typed record, from which the pages, the findings, Python and Prometheus are written."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, TypedDict

from ..engine.step import Json
from .number_format import is_known

Table = list[list[float]]
"""A list for each graph component, with a number for each coordinate."""


class Estimate(TypedDict, total=False):
    """A measure on a sample and its 95 % interval."""

    value: float
    low: float | None
    high: float | None
    sample: int
    n_neighbors: int
    sources: int
    chance: float | None


class Stopped(TypedDict):
    """The stage in which a run stopped or is, and the reason of a bound that was not met."""

    stage: str | None
    running: bool
    reason: str | None


@dataclass(frozen=True)
class Metrics:
    """The keys of metrics.json, each with its content as in JSON; None: not measured.

    docs/reference/metrics.md has the meaning of each key.
    """

    n_input: int = 0
    n_points: int | None = None
    n_features: int | None = None
    duplicates_merged: int | None = None
    ids: Json | None = None
    invalid_dropped: int | None = None
    dropped: dict[str, int] | None = None
    invalid_by_column: dict[str, int] | None = None
    rows_placed: int | None = None
    fit_sample: Json | None = None
    list_sizes: Json | None = None
    recall: Estimate | None = None
    recall_raised: list[dict[str, float]] | None = None
    n_components_weak: int | None = None
    component_sizes: list[int] | None = None
    rows_measured: int | None = None
    components_differ_in: list[str] | None = None
    closed_classes: int | None = None
    closed_classes_left: int | None = None
    closed_classes_embedded: Json | None = None
    reverse_added: int | None = None
    bridges_added: int | None = None
    points_repaired: int | None = None
    components_joined: int | None = None
    links_added: int | None = None
    longest_link: float | None = None
    method: str = "lle"
    reg: Json | None = None
    nnz_cost_matrix: int | None = None
    reconstruction_error: float | None = None
    zero_trace_rows: int | None = None
    unlisted_points: int | None = None
    skipped_neighborhoods: int | None = None
    alignment: Json | None = None
    eigenvalues: Table | None = None
    residuals: Table | None = None
    participation: Table | None = None
    separated: Table | None = None
    vector_errors: list[list[float] | None] | None = None
    coordinates: list[Json] | None = None
    solver: Json | None = None
    solvers: list[Json] | None = None
    component_points: list[int] | None = None
    trustworthiness: Estimate | None = None
    continuity: Estimate | None = None
    kept_neighbors: Estimate | None = None
    pca_gain: Estimate | None = None
    pca_kept_gain: Estimate | None = None
    correlation_sum: Estimate | None = None
    pca_correlation_sum: Estimate | None = None
    redundancy: list[float] | None = None
    regression_residual: list[Estimate] | None = None
    procrustes_error: Estimate | None = None
    residual_variance: Estimate | None = None
    residual_variance_truth: Estimate | None = None
    residual_variance_affine: Estimate | None = None
    neighborhood_hit: Estimate | None = None
    neighborhood_hit_input: Estimate | None = None
    intrinsic_dimension: Estimate | None = None
    features: list[str] | None = None
    label: str | None = None
    id: str | None = None
    columns_left_out: dict[str, str] | None = None
    min_recall: float | None = None
    seconds: dict[str, float] = field(default_factory=dict)
    peak_bytes: dict[str, int] = field(default_factory=dict)
    blocks: dict[str, int] = field(default_factory=dict)
    stopped: Stopped | None = None
    version: str | None = None
    picture: str | None = None
    finished: str | None = None
    versions: dict[str, str] | None = None
    verdict: str | None = None
    warnings: list[str] | None = None
    defects: list[str] | None = None
    findings: list[Json] | None = None

    @classmethod
    def read(cls, content: Mapping[str, Any]) -> "Metrics":
        """The record of a metrics.json; keys that it lacks are None, unknown keys are left out."""
        return cls(**{entry.name: content[entry.name] for entry in fields(cls) if entry.name in content})

    def number(self, measure: str) -> float | None:
        """The value of an `Estimate`; None if it was not measured."""
        value = (getattr(self, measure) or {}).get("value")
        return float(value) if is_known(value) else None
