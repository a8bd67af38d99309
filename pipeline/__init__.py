"""Locally Linear Embedding of millions of points as a distributed batch job.

In Python: `LocallyLinearEmbedding` (scikit-learn's interface), `embed` (one call), `open_run` (results of a
run), `plot` (an embedding on matplotlib axes).
Each is imported on first use, so that `import lle` and the command load only what they need.

The name of the package is `lle`. `import pipeline` gives the same modules. Imports inside the package are relative, so
they never load a file pipeline.py of the user.
"""

import sys
from importlib import import_module
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .api.embed import EmbeddingWarning, embed
    from .api.estimator import LocallyLinearEmbedding
    from .api.open_run import OpenedRun, open_run
    from .api.plot import plot

__all__ = ["EmbeddingWarning", "LocallyLinearEmbedding", "OpenedRun", "embed", "open_run", "plot"]

_HOMES = {
    "EmbeddingWarning": ".api.embed",
    "LocallyLinearEmbedding": ".api.estimator",
    "OpenedRun": ".api.open_run",
    "embed": ".api.embed",
    "open_run": ".api.open_run",
    "plot": ".api.plot",
}


def __getattr__(name: str) -> Any:
    if name == "__version__":  # pyproject.toml has it; reading it takes some milliseconds, so only on demand
        return import_module("importlib.metadata").version("lle-pipeline")
    if name == "scanpy":
        return import_module(".scanpy", __name__)
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name], __name__), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, "__version__"})


if __name__ == "pipeline":
    if (spec := find_spec("lle")) is None or spec.origin is None:  # hidden by a folder `lle` in the working directory
        spec = spec_from_file_location("lle", __file__, submodule_search_locations=__path__)
        assert spec is not None
        assert spec.loader is not None
        sys.modules["lle"] = module_from_spec(spec)
        spec.loader.exec_module(sys.modules["lle"])
    import_module("lle.core.alias").Alias("pipeline", "lle").install()
