"""The section `input`: one model for each kind."""

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import AliasChoices, Field, StrictFloat, StrictInt

from .fields import Float, Int, Model, Name

PATHS = "a path, a pattern such as rows/*.parquet, or a URL; files are taken in the order of their names"
MAX_POINTS = 10**10
COLUMN_NUMBERS = "numbers of the columns to take, counted from 0; null: all"


class AnyInput(Model):
    """The keys that every kind of input has."""

    where: StrictInt | StrictFloat | Name | None = Field(None, description="keep only the rows with this label")
    fit_sample: Int | None = Field(
        None,
        gt=0,
        description="number of rows, evenly spread, whose embedding is computed; the other rows are placed "
        "among them; null: all rows are embedded together",
    )


class SyntheticInput(AnyInput):
    kind: Literal["synthetic"] = Field(description="points of a built-in manifold, or the digits of scikit-learn")
    name: Literal[
        "swiss_roll",
        "s_curve",
        "spiral_2d",
        "spiral_3d",
        "punctured_sphere",
        "elliptic_paraboloid",
        "cusp",
        "sheet",
        "digits",
    ] = Field(description="the manifold")
    n_points: Int | None = Field(None, gt=0, le=MAX_POINTS, description="rows to generate; digits always has 1797")
    noise: Float = Field(0.0, ge=0, description="standard deviation of Gaussian noise, in input units")
    seed: Int = Field(7, ge=0, description="seed of the points and of the noise")
    phi: Float = Field(0.0, ge=0, lt=6.283, description="start of the azimuth in radians (punctured_sphere)")

    def contradictions(self) -> Iterator[str]:
        if self.n_points is None and self.name != "digits":
            yield f"input.n_points is required for the generated manifold {self.name!r}"
        elif self.name == "digits" and (self.n_points not in (None, 1797) or self.noise):
            yield (
                f"digits has 1797 points without noise; remove input.n_points and input.noise (found {self.n_points} "
                f"and {self.noise})"
            )


_LABELS, _LABEL = AliasChoices("labels", "label"), AliasChoices("label", "labels")


class ZarrInput(AnyInput):
    kind: Literal["zarr"] = Field(description="a Zarr array, format 2 or 3")
    url: str = Field(description="path or URL of the array or of its group")
    array: Name | None = Field(None, description="name of the array in the group")
    labels: Name | None = Field(None, validation_alias=_LABELS, description="array of the same group")
    columns: tuple[Int, ...] | None = Field(None, description=COLUMN_NUMBERS)


class NpyInput(AnyInput):
    kind: Literal["npy"] = Field(description="NumPy files of one array each")
    path: str = Field(description=PATHS)
    labels: str | None = Field(None, validation_alias=_LABELS, description="path of a 1-D .npy")
    columns: tuple[Int, ...] | None = Field(None, description=COLUMN_NUMBERS)
    id: str | None = Field(
        None, description="path of a 1-D .npy of whole numbers or text that identify the rows in every result"
    )


class NpzInput(AnyInput):
    kind: Literal["npz"] = Field(description="NumPy archives")
    path: str = Field(description=PATHS)
    key: Name | None = Field(None, description="name of the array in each archive; null: the only two-dimensional one")
    labels: Name | None = Field(None, validation_alias=_LABELS, description="key in the same file")
    columns: tuple[Int, ...] | None = Field(None, description=COLUMN_NUMBERS)


class IdxInput(AnyInput):
    kind: Literal["idx"] = Field(description="IDX files, the format of MNIST, gzipped or not")
    path: str = Field(description=PATHS)
    labels: str | None = Field(None, validation_alias=_LABELS, description="path of an IDX file of labels")
    columns: tuple[Int, ...] | None = Field(None, description=COLUMN_NUMBERS)


class TableInput(AnyInput):
    kind: Literal["parquet", "csv"] = Field(
        description="parquet: Parquet files, or Arrow files (.arrow, .feather); csv: text files with a header; commas, "
        "semicolons, tabs or | between columns; .gz, .bz2, .xz and .zst are decompressed"
    )
    path: str = Field(description=PATHS)
    columns: tuple[Name, ...] | None = Field(
        None, description="names of the columns to take; null: all numeric columns except label and id"
    )
    label: Name | None = Field(None, validation_alias=_LABEL, description="column that colours the picture")
    id: Name | None = Field(
        None,
        description="column of whole numbers or text that identifies each row; it is not a feature; exports and the "
        "explorer have it",
    )


class AnnDataInput(AnyInput):
    kind: Literal["anndata"] = Field(description="AnnData files, .h5ad (needs the extra anndata) or .zarr")
    path: str = Field(description=PATHS)
    obsm: Name | None = Field("X_pca", min_length=1, description="matrix of obsm; null: X, which must be dense")
    label: Name | None = Field(None, validation_alias=_LABEL, description="column of obs that colours the picture")
    id: Name | None = Field(None, description="obs_names, or a column of obs; it identifies each row in every result")


Input = Annotated[
    SyntheticInput | ZarrInput | NpyInput | NpzInput | IdxInput | TableInput | AnnDataInput, Field(discriminator="kind")
]
