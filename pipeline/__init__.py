"""Locally Linear Embedding of millions of points as a distributed batch job.

In Python: `LocallyLinearEmbedding` (scikit-learn's protocol), `embed` (one call), `open_run` (what a run has left).
Each is imported when it is first asked for, so that `import pipeline` and the command load nothing they do not need.
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
