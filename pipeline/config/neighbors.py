"""The section `neighbors`: how neighbours are searched, how many each point has, or where to read them from."""

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from .fields import Float, Int, Model, Name


class NpyGraph(Model):
    kind: Literal["npy"] = Field(description="a NumPy file")
    path: str = Field(description="path or URL of the (rows, k) row numbers")


class ZarrGraph(Model):
    kind: Literal["zarr"] = Field(description="a Zarr array")
    url: str = Field(description="path or URL of the array or of its group")
    array: Name | None = Field(None, description="name of the array in the group")


class AnnDataGraph(Model):
    kind: Literal["anndata"] = Field(description="a sparse matrix of an AnnData file")
    path: str = Field(description="path or URL of the .h5ad or .zarr file")
    obsp: Name = Field(
        "distances", min_length=1, description="matrix of obsp by rows (CSR); its entries are neighbours"
    )


Graphs = Annotated[NpyGraph | ZarrGraph | AnnDataGraph, Field(discriminator="kind")]


class Neighbors(Model):
    method: Literal["auto", "kdtree", "pynndescent", "brute"] = Field(
        "auto",
        description="kdtree and brute are exact; auto: kdtree for few features, brute for few points, "
        "otherwise pynndescent",
    )
    n_neighbors: Int = Field(12, ge=2, description="neighbours of each point, without the point itself")
    reverse: Annotated[Int, Field(ge=0)] | Literal["auto"] = Field(
        "auto",
        description="maximum number of reverse neighbours that are added to the list of every point; auto: 4 for "
        "members of small closed classes if the method is sensitive to these, otherwise 0",
    )
    min_recall: Float = Field(0.9, ge=0, le=1, description="bound on the measured recall; below it the exit code is 3")
    seed: Int = Field(0, ge=0, lt=2**32, description="seed of the cells and of pynndescent")
    metric: Literal["euclidean", "cosine"] = Field(
        "euclidean", description="cosine: preprocessed rows are scaled to unit length; all distances are Euclidean"
    )
    radius: Annotated[Float, Field(gt=0)] | None = Field(
        None, description="neighbours within this distance (cosine: 1 - cos), the nearest k_min to k_max of them"
    )
    k_per_point: str | None = Field(
        None, min_length=1, description="number of neighbours of each row, given in the same form as the labels"
    )
    precomputed: Graphs | None = Field(None, description="neighbours of each input row, as row numbers; -1 pads")
    k_min: Annotated[Int, Field(ge=1)] | Literal["auto"] = Field(
        "auto",
        description="fewest neighbours in lists of varying length; auto: n_components + 1, or what the method needs",
    )
    k_max: Annotated[Int, Field(ge=1)] | Literal["auto"] = Field("auto", description="auto: twice n_neighbors")
    max_overlap: Int = Field(
        8,
        ge=2,
        description="pynndescent: each point is searched in 2 groups of cells, then in twice as many while "
        "the measured recall is below min_recall, up to this number",
    )

    @property
    def rule(self) -> str | None:
        """The key that sets how many neighbours each point has: radius or k_per_point; None: all the same."""
        return next((name for name in ("radius", "k_per_point") if getattr(self, name) is not None), None)

    def contradictions(self) -> Iterator[str]:
        if self.radius is not None and self.k_per_point is not None:
            yield "radius and k_per_point each set the number of neighbours of a point; keep one of them"
        bounds = [name for name in ("k_min", "k_max") if getattr(self, name) != "auto"]
        if bounds and self.rule is None and self.precomputed is None:
            yield (
                f"{' and '.join(bounds)} bound lists of varying length, but every point has n_neighbors here; remove "
                f"them, or set radius, k_per_point or precomputed"
            )
        if self.metric == "cosine" and self.radius is not None and self.radius > 2:
            yield f"radius is {self.radius:g}, but 1 - cos is at most 2; lower radius"
        if self.radius is not None and not 1.2e-38 < self.radius < 3.4e38:
            yield (
                f"radius is {self.radius:g}, outside of the range of float32, in which distances are stored; scale the "
                f"data (preprocess.scale: standard) and set the radius for the new unit"
            )
        if self.precomputed is not None and self.method != "auto":
            yield f"method is {self.method}, but precomputed neighbours need no search; remove one of them"


def reverse_neighbors(reverse: int | str, method: str, n_components: int, smallest: int) -> int | None:
    """Reverse neighbours of each point for `neighbors.reverse`; None: only for members of small closed classes.

    A method is sensitive to closed classes if a point can have a single row of F. Such a point outside all closed
    classes can take values from any class, so M has one null vector for each class. With more rows M has one null
    vector for each component (tests/stages/test_null_spaces.py). `smallest`: fewest neighbours of a point.

    >>> reverse_neighbors("auto", "lle", 2, 12), reverse_neighbors("auto", "ltsa", 2, 12)
    (None, 0)
    """
    if reverse != "auto":
        return int(reverse)
    single = {
        "lle": True,
        "hessian": n_components == 1,
        "ltsa": smallest == n_components + 2,
        "modified": smallest <= n_components + 1,
    }
    return None if single.get(method, False) else 0
