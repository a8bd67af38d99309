"""Locally Linear Embedding of millions of points as a distributed batch job.

In Python: `LocallyLinearEmbedding` and `locally_linear_embedding` (scikit-learn's interface), `embed` (one call),
`open_run` (results of a run), `plot` (an embedding on matplotlib axes).
Each is imported on first use, so that `import lle` and the command load only what they need.

The folder `pipeline` is installed as the package `lle`. Imports inside the package are relative, so `python -m
pipeline` from the root of a checkout runs the same files.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from . import scanpy as scanpy
    from .api.embed import EmbeddingWarning as EmbeddingWarning
    from .api.embed import embed as embed
    from .api.estimator import LocallyLinearEmbedding as LocallyLinearEmbedding
    from .api.locally_linear_embedding import locally_linear_embedding as locally_linear_embedding
    from .api.open_run import OpenedRun as OpenedRun
    from .api.open_run import open_run as open_run
    from .api.plot import plot as plot

    __version__: str

_HOMES = {
    "EmbeddingWarning": ".api.embed",
    "LocallyLinearEmbedding": ".api.estimator",
    "OpenedRun": ".api.open_run",
    "embed": ".api.embed",
    "locally_linear_embedding": ".api.locally_linear_embedding",
    "open_run": ".api.open_run",
    "plot": ".api.plot",
}
__all__ = list(_HOMES)

if not TYPE_CHECKING:  # type checkers then report other names

    def __getattr__(name):
        if name == "__version__":  # pyproject.toml has it; reading it takes some milliseconds, so only on demand
            return import_module("importlib.metadata").version("lle-pipeline")
        if name == "scanpy":
            return import_module(".scanpy", __name__)
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(_HOMES[name], __name__), name)


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__", "scanpy"])
