"""Checks of a config against the header of its input, without computing (`lle validate`)."""

from ..config.models import Config
from ..engine.plan import Layout
from ..report import prometheus
from ..stages import ingest
from .layout import check_layout, layout_of


def validate(config: Config) -> Layout:
    """Check the config against the input's header. Raises ConfigError, InputError or NotEnoughMemory."""
    layout = layout_of(config, ingest.open_input(config))
    check_layout(config, layout)
    if config.output.prometheus is not None:
        prometheus.check_place(config.output.prometheus)
    return layout
