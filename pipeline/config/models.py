"""The config: frozen pydantic models of one YAML file, with every default in one place.

Only the modules of pipeline.config use YAML, and only they and storage/records use pydantic.
"""

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator

from ..core.errors import counted
from ..core.methods import METHODS
from .clusters import AnyCluster, Cluster, KubernetesCluster, SlurmCluster, Tls, Wait
from .fields import Float, Int, Model, Size
from .inputs import Input
from .neighbors import Neighbors

__all__ = ["Cluster", "Config", "Execution", "Input", "KubernetesCluster", "SlurmCluster", "Tls"]

LEAST_PAIRS, SPARE_PAIRS, MOST_PAIRS = 10, 4, 16
"""For `embedding.coordinates: independent`, if the lowest eigenvectors are not independent: the choice is among
LEAST_PAIRS or more, SPARE_PAIRS more than coordinates or more, and among MOST_PAIRS if too many are clumps."""


class Preprocess(Model):
    scale: Literal["none", "standard"] = Field(
        "none", description="standard: centre each column and divide it by its standard deviation"
    )
    pca: Int | None = Field(None, gt=0, description="number of principal components to keep; null: no reduction")
    invalid: Literal["error", "drop"] = Field(
        "error", description="rows with NaN or infinity: end the run, or drop them"
    )

    @model_validator(mode="before")
    @classmethod
    def _without_duplicates(cls, data: object) -> object:
        """Equal rows are always merged. Earlier configs have this key."""
        if isinstance(data, dict) and data.get("duplicates") == "merge":
            return {key: value for key, value in data.items() if key != "duplicates"}
        return data


class Weights(Model):
    reg: Annotated[Float, Field(gt=0)] | Literal["auto"] = Field(
        "auto",
        description="regularisation of the local Gram matrices, for lle and modified; auto: a value "
        "from 1e-3 to 1, by the noise in neighbourhoods and trial embeddings of a sample; embedding.coordinates: "
        "independent allows a larger value for dense points with noise",
    )
    rule: Literal["trace", "absolute", "when_needed"] = Field(
        "trace",
        description="what is added to the diagonal of the Gram matrices: trace: reg times their trace; "
        "absolute: reg; when_needed: reg times their trace, only if they are singular (more neighbours than features)",
    )
    edges: Literal["heat", "binary"] = Field("heat", description="laplacian: weights exp(-distance^2 / t), or 1")
    t: Annotated[Float, Field(gt=0)] | Literal["auto"] = Field(
        "auto",
        description="t of the heat kernel, in squared input units; auto: mean squared distance of neighbours, "
        "or more if the weight of the longest edge would be rounded away",
    )

    def contradictions(self) -> Iterator[str]:
        if self.reg == "auto" and self.rule == "absolute":
            yield (
                "reg is auto, which is a share of the trace, and rule is absolute, which takes reg in squared input "
                "units; give reg as a number, or set rule to trace"
            )


class Graph(Model):
    components: Literal["separate", "connect", "largest", "error"] = Field(
        "separate",
        description="separate: embed each connected component separately; connect: join the components by their "
        "shortest links and embed all rows together; largest: embed only the largest; error: refuse several components",
    )
    min_component: Annotated[Int, Field(ge=1)] | Literal["auto"] = Field(
        "auto",
        description="input rows of the smallest component that is embedded separately; auto: n_components + 2. "
        "Rows of smaller components get coordinates from the nearest embedded points, and -2 as their component",
    )


class Eigensolver(Model):
    n_components: Int = Field(2, ge=1, description="coordinates of the embedding")
    method: Literal["auto", "shift_invert", "factored", "multigrid"] = Field(
        "auto",
        description="factored and shift_invert factor a sparse matrix; multigrid (formerly polynomial) does "
        "not; auto: chosen by predicted work and memory",
    )
    device: Literal["cpu", "gpu"] = Field(
        "cpu",
        description="gpu: the cycles of multigrid run on an NVIDIA GPU; needs the extra gpu, and method: multigrid",
    )
    tol: Float = Field(1.0e-8, gt=0, description="relative residual at which an eigenpair counts as converged")
    max_memory: Size = Field(
        "auto",
        description="memory that the eigensolve may use; auto: 80 % of the first 6 GiB that are free, 95 % of the rest",
    )
    max_steps: Int = Field(
        60, ge=1, description="multigrid: maximum number of steps. If it is raised, the next run continues"
    )

    def contradictions(self) -> Iterator[str]:
        if self.device == "gpu" and self.method != "multigrid":
            yield (
                f"device is gpu and method is {self.method}: only multigrid runs on a GPU; set method to multigrid, or "
                f"device to cpu"
            )

    @field_validator("method", mode="before")
    @classmethod
    def _former_name(cls, value: object) -> object:
        return "multigrid" if value == "polynomial" else value


class Embedding(Model):
    coordinates: Literal["first", "independent"] = Field(
        "first",
        description="first: the lowest eigenvectors, as in scikit-learn; independent: if some of these are "
        "confined to a few points, or predicted by the others, later ones replace them",
    )
    scale: Literal["unit_covariance", "unit_norm"] = Field(
        "unit_covariance",
        description="each coordinate has variance 1 (Saul & Roweis), or is a vector of length 1 (scikit-learn); of "
        "laplacian with the points weighted by their degree; without effect on pca, whose coordinates are scores in "
        "input units",
    )
    align: str | None = Field(
        None,
        min_length=1,
        description="rotate the embedding onto an earlier one, fitted on their common rows: "
        "previous (the last one in output.store), or the path or URL of another run's store",
    )


class Quality(Model):
    sample: Int = Field(2000, ge=1, description="points on which quality is measured")
    seed: Int = Field(0, ge=0, description="seed of the sample")
    geodesic_sources: Annotated[Int, Field(ge=0)] | Literal["auto"] = Field(
        "auto",
        description="sampled points from which shortest paths in the graph are measured, for "
        "residual_variance; 0: not measured; auto: 10 to 50, 0 above a million points",
    )


class Output(Model):
    store: str = Field(min_length=1, description="path or URL where the run keeps its arrays and its report")
    report: bool = Field(True, description="write the pages and pictures of the report")
    min_rows: Float = Field(
        0.5, ge=0, le=1, description="share of the input rows that must have coordinates; below it the exit code is 3"
    )
    cost_matrix: bool = Field(
        True,
        description="store the cost matrix M; false saves time and disk space, because the eigensolver needs "
        "only the factor of M (eigensolver.method: shift_invert then computes M in memory)",
    )
    image_shape: tuple[Annotated[Int, Field(gt=0)], ...] | None = Field(
        None,
        min_length=2,
        max_length=3,
        description="[height, width] or [height, width, 3] (colours): every row of "
        "the input is an image, which the explorer shows; null: the shape in an IDX file, otherwise no images",
    )
    keep: Int | None = Field(
        None,
        ge=1,
        description="number of published versions to keep: store is then a root of versions, and every "
        "run with a new result publishes one; null: store is the store of one run",
    )
    prometheus: str | None = Field(None, min_length=1, description="a .prom file for the textfile collector")


class Execution(Model):
    block_points: Annotated[Int, Field(ge=16)] | Literal["auto"] = Field(
        "auto", description="rows of a block, the unit of a task; auto: as many as the memory of a worker allows"
    )
    cluster: AnyCluster = Cluster()
    lock_wait: Wait = Field(0, description="how long to wait for another run that holds the store; 0: refuse at once")


class Config(Model):
    """One run. Sections are stages; every key has a default except input and output.store."""

    method: Literal["lle", "modified", "hessian", "ltsa", "laplacian", "pca"] = Field(
        "lle", description="the method of embedding (docs/explanations/methods.md)"
    )
    input: Input
    preprocess: Preprocess = Preprocess()
    neighbors: Neighbors = Neighbors()
    weights: Weights = Weights()
    graph: Graph = Graph()
    eigensolver: Eigensolver = Eigensolver()
    embedding: Embedding = Embedding()
    quality: Quality = Quality()
    output: Output
    execution: Execution = Execution()

    @property
    def varies(self) -> bool:
        """Whether points can have different numbers of neighbours before the graph is repaired."""
        return self.neighbors.rule is not None or self.neighbors.precomputed is not None

    @property
    def k_bounds(self) -> tuple[int, int]:
        """Fewest and most neighbours of a point before the graph is repaired (a precomputed graph may have fewer)."""
        n = self.neighbors
        if not self.varies:
            return n.n_neighbors, n.n_neighbors
        smallest = 1 if self.method == "pca" else max(self.eigensolver.n_components + 1, self.min_neighbors)
        return smallest if n.k_min == "auto" else n.k_min, 2 * n.n_neighbors if n.k_max == "auto" else n.k_max

    @property
    def more_pairs(self) -> tuple[int, ...]:
        """Numbers of eigenpairs that are computed in turn if fewer do not suffice; empty if the lowest are taken."""
        if self.embedding.coordinates == "first" or self.method == "pca":
            return ()
        least = max(LEAST_PAIRS, self.eigensolver.n_components + SPARE_PAIRS)
        return least, max(least, MOST_PAIRS)

    @property
    def min_neighbors(self) -> int:
        """The fewest neighbours of a point that the method needs."""
        return METHODS[self.method].min_neighbors(self.eigensolver.n_components)

    def contradictions(self) -> Iterator[str]:
        yield from self._contradictions_of_lists()
        for key, value, reason in (
            ("output.keep", self.output.keep, "versions of a store hold runs of all rows"),
            ("neighbors.k_per_point", self.neighbors.k_per_point, "it has an entry for every row"),
            ("neighbors.precomputed", self.neighbors.precomputed, "it has an entry for every row"),
        ):
            if self.input.fit_sample is not None and value is not None:
                yield f"input.fit_sample and {key} are both set, but {reason}; remove one of them"
        m, pca = self.eigensolver.n_components, self.preprocess.pca
        k, smallest = self.k_bounds[1], self.min_neighbors
        if m < k < smallest:
            yield (
                f"method is {self.method}, eigensolver.n_components {m} and neighbors.n_neighbors {k}: {self.method} "
                f"needs at least {smallest} neighbours for {m} coordinates; raise n_neighbors or lower n_components"
            )
        if self.method not in ("lle", "pca") and self.eigensolver.method == "factored":
            yield (
                f"eigensolver.method is factored and method is {self.method}: only lle has a square factor, I - W; "
                f"set eigensolver.method to auto, shift_invert or multigrid"
            )
        if m >= k and self.method != "pca":
            yield (
                f"eigensolver.n_components is {m} and neighbors.n_neighbors is {k}: {k} neighbours span at most "
                f"{counted(k - 1, 'dimension')}; lower n_components or raise n_neighbors to {m + 1} or more"
            )
        if pca is not None and m > pca:
            yield (
                f"eigensolver.n_components is {m} but preprocess.pca leaves {pca} features; lower n_components or "
                f"raise pca"
            )

    def _contradictions_of_lists(self) -> Iterator[str]:
        k_min, k_max = self.k_bounds
        if k_min > k_max:
            yield (
                f"neighbors.k_min is {k_min} and neighbors.k_max is {k_max}; raise k_max or lower k_min (auto: "
                f"n_components + 1, or what the method needs, and twice n_neighbors)"
            )
        if self.varies and k_min < self.min_neighbors:
            yield (
                f"neighbors.k_min is {k_min}, but method {self.method} needs at least {self.min_neighbors} neighbours "
                f"of every point for {self.eigensolver.n_components} coordinates; raise k_min"
            )
        column = self.neighbors.k_per_point
        if column is not None and self.input.kind == "synthetic":
            yield "neighbors.k_per_point is set, but generated manifolds have no such column; use radius"
        if column is not None and self.input.kind in {"parquet", "csv"} and self.input.columns is None:
            yield (
                f"neighbors.k_per_point is the column {column!r}, and without input.columns all columns are features, "
                f"including this one; list the features in input.columns"
            )
