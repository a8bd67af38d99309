"""The package of the folder `pipeline` beside this file, under the name of its command.

This module replaces itself by that package, so `lle.api.embed` is the file pipeline/api/embed.py. Nothing imports the
name `pipeline`: a user's own pipeline.py keeps that name.
"""

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pipeline import EmbeddingWarning, LocallyLinearEmbedding, OpenedRun, embed, open_run, plot

    __all__ = ["EmbeddingWarning", "LocallyLinearEmbedding", "OpenedRun", "embed", "open_run", "plot"]

_FOLDER = Path(__file__).resolve().parents[1] / "pipeline"
_spec = spec_from_file_location("lle", _FOLDER / "__init__.py", submodule_search_locations=[str(_FOLDER)])
assert _spec is not None
assert _spec.loader is not None
_package = sys.modules["lle"] = module_from_spec(_spec)
_spec.loader.exec_module(_package)
