"""Content of the marker of a block: the step's fingerprint and the report of the task."""

from typing import Any

from .plan import BlockReport, Json


def pack(fingerprint: str, report: BlockReport) -> Json:
    """The marker of a finished block."""
    return {"fingerprint": fingerprint, **vars(report)}


def unpack(content: Any, fingerprint: str) -> BlockReport | None:
    """The report in a marker; None if the marker is missing or damaged (None) or its fingerprint differs.

    Later steps use numbers that are stored only in markers, so the block of a damaged marker is computed again.
    """
    if not isinstance(content, dict) or content.get("fingerprint") != fingerprint:
        return None
    stored = {key: value for key, value in content.items() if key != "fingerprint"}
    try:
        return BlockReport(**{**stored, "bundles": tuple(stored.get("bundles", ()))})
    except TypeError:
        return None
