"""Checks of a config against the header of its input, without computing (`lle validate`)."""

from pipeline.config.models import Config
from pipeline.engine.plan import Layout
from pipeline.jobs.layout import check_layout, layout_of
from pipeline.report import prometheus
from pipeline.stages import ingest


def validate(config: Config) -> Layout:
    """Check the config against the input's header. Raises ConfigError, InputError or NotEnoughMemory."""
    layout = layout_of(config, ingest.open_input(config))
    check_layout(config, layout)
    if config.output.prometheus is not None:
        prometheus.check_place(config.output.prometheus)
    return layout
