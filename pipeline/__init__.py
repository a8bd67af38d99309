"""Locally Linear Embedding of millions of points as a distributed batch job.

In Python: `LocallyLinearEmbedding` (scikit-learn's interface), `embed` (one call), `open_run` (results of a run).
Each is imported on first use, so that `import pipeline` and the command load only what they need.
"""

from importlib import import_module, metadata
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pipeline.api.embed import embed
    from pipeline.api.estimator import LocallyLinearEmbedding
    from pipeline.api.open_run import OpenedRun, open_run

__all__ = ["LocallyLinearEmbedding", "OpenedRun", "embed", "open_run"]

_HOMES = {
    "LocallyLinearEmbedding": "pipeline.api.estimator",
    "OpenedRun": "pipeline.api.open_run",
    "embed": "pipeline.api.embed",
    "open_run": "pipeline.api.open_run",
}


def __getattr__(name: str) -> Any:
    if name == "__version__":  # pyproject.toml has it; reading it takes some milliseconds, so only on demand
        return metadata.version("lle-pipeline")
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, "__version__"})
