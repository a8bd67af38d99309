"""Sphinx settings. `make docs` builds the site; every warning is an error."""

import sys
from importlib.metadata import version as installed_version
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from generated_pages import PLACEHOLDERS

project = "lle-pipeline"
author = "The lle-pipeline developers"
project_copyright = author
release = installed_version("lle-pipeline")

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.viewcode", "numpydoc", "sphinx_copybutton"]
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 3
suppress_warnings = ["misc.highlighting_failure"]

html_theme = "furo"
html_title = f"lle-pipeline {release}"
html_show_sphinx = False
html_static_path = ["_static"]
html_css_files = ["dark.css"]

autodoc_typehints = "none"  # the numpydoc docstrings have them
autodoc_member_order = "bysource"
numpydoc_show_class_members = False
numpydoc_validation_checks = {"GL03", "GL08", "PR01", "PR02", "PR03", "PR04", "RT01", "YD01", "EX01"}
numpydoc_validation_exclude = {r"\.__init__$", r"\.fit(_transform)?$"}  # the class has an example


def fill_placeholders(app: Any, page: str, source: list[str]) -> None:
    """Replace `{{ name }}` in a page by the text generated from the code."""
    for name, generate in PLACEHOLDERS.items():
        if name in source[0]:
            source[0] = source[0].replace(f"{{{{ {name} }}}}", generate())


def setup(app: Any) -> None:
    app.connect("source-read", fill_placeholders)
