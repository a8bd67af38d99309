"""Checks of a config against the header of its input, without computing (`lle validate`)."""

from pipeline.config.models import Config
from pipeline.engine.plan import Layout
from pipeline.jobs.layout import check_plan, choose_layout
from pipeline.report import prometheus
from pipeline.stages import (
    ingest,
)


def validate(config: Config) -> Layout:
    """Check the config against the input's header. Raises ConfigError, InputError or NotEnoughMemory."""
    layout = choose_layout(config, ingest.open_input(config), None)
    check_plan(config, layout)
    if config.output.prometheus is not None:
        prometheus.check_place(config.output.prometheus)
    return layout
