"""Content of the marker of a block: the step's fingerprint, the report of the task, and a checksum of both."""

import json
from typing import Any

from ..storage.records import checksum_of
from .plan import BlockReport, Json


def pack(fingerprint: str, report: BlockReport) -> Json:
    """The marker of a finished block, after a round trip through JSON."""
    content = json.loads(json.dumps({"fingerprint": fingerprint, **vars(report)}))
    return {**content, "crc32": checksum_of(content)}


def unpack(content: Any, fingerprint: str) -> BlockReport | None:
    """The report in a marker; None if the fingerprint differs or the marker is damaged.

    Later steps use numbers that are stored only in markers, so the block of a damaged marker is computed again.
    """
    if not isinstance(content, dict) or content.get("fingerprint") != fingerprint:
        return None
    stored = {key: value for key, value in content.items() if key != "crc32"}
    if content.get("crc32") != checksum_of(stored):
        return None
    del stored["fingerprint"]
    try:
        return BlockReport(**{**stored, "bundles": tuple(stored.get("bundles", ()))})
    except TypeError:
        return None
