"""The section `input`: one model for each kind."""

from typing import Annotated, Any, Literal

from pydantic import AliasChoices, Field, ValidationInfo, field_validator, model_validator

from pipeline.config.fields import Tagged, checked_number


class AnyInput(Tagged):
    """The keys that every kind of input has."""

    where: int | float | str | None = Field(None, description="keep only the rows with this label")

    @field_validator("where", "n_points", "noise", "seed", "phi", "columns", mode="before", check_fields=False)
    @classmethod
    def _numbers_are_numbers(cls, value: Any, info: ValidationInfo) -> Any:
        return checked_number(cls, value, info)


class SyntheticInput(AnyInput):
    kind: Literal["synthetic"]
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
    ]
    n_points: int | None = Field(None, gt=0, description="rows to generate; digits always has 1797")
    noise: float = Field(0.0, ge=0, description="standard deviation of Gaussian noise, in input units")
    seed: int = Field(7, ge=0)
    phi: float = Field(0.0, ge=0, lt=6.283, description="start of the azimuth in radians (punctured_sphere)")

    @model_validator(mode="after")
    def _has_size(self) -> "SyntheticInput":
        if self.n_points is None and self.name != "digits":
            raise ValueError(f"input.n_points is required for the generated manifold {self.name!r}")
        return self


_LABELS = AliasChoices("labels", "label")


class ZarrInput(AnyInput):
    kind: Literal["zarr"]
    url: str
    array: str | None = None
    labels: str | None = Field(None, validation_alias=_LABELS, description="array of the same group")
    columns: tuple[int, ...] | None = None


class NpyInput(AnyInput):
    kind: Literal["npy"]
    path: str
    labels: str | None = Field(None, validation_alias=_LABELS, description="path of a 1-D .npy")
    columns: tuple[int, ...] | None = None


class NpzInput(AnyInput):
    kind: Literal["npz"]
    path: str
    key: str | None = None
    labels: str | None = Field(None, validation_alias=_LABELS, description="key in the same file")
    columns: tuple[int, ...] | None = None


class IdxInput(AnyInput):
    kind: Literal["idx"]
    path: str
    labels: str | None = Field(None, validation_alias=_LABELS, description="path of an IDX file of labels")
    columns: tuple[int, ...] | None = None


class ParquetInput(AnyInput):
    kind: Literal["parquet"]
    path: str
    columns: tuple[str, ...] | None = None
    label: str | None = Field(None, validation_alias=AliasChoices("label", "labels"))


class CsvInput(AnyInput):
    kind: Literal["csv"]
    path: str
    columns: tuple[str, ...] | None = None
    label: str | None = Field(None, validation_alias=AliasChoices("label", "labels"))


Input = Annotated[
    SyntheticInput | ZarrInput | NpyInput | NpzInput | IdxInput | ParquetInput | CsvInput, Field(discriminator="kind")
]

KINDS: dict[Any, type[AnyInput]] = {
    "synthetic": SyntheticInput, "zarr": ZarrInput, "npy": NpyInput, "npz": NpzInput, "idx": IdxInput,
    "parquet": ParquetInput, "csv": CsvInput,
}  # fmt: skip
