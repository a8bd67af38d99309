"""Whether what the blocks of an input were read from is one state of it: others may write there meanwhile."""

from pipeline.errors import InputChanged
from pipeline.plan import Report, block_rows
from pipeline.sources import Source


def require_one_state(before: Source, after: Source, size: int, n: int, reports: list[Report]) -> None:
    """Raises InputChanged unless all blocks come from the input as it was before, and still is for its first n rows.

    A file that comes among others moves the rows of all that follow it: some would be read twice and others never.
    """
    wanted = [before.state(*block_rows(block, size, n)) for block in range(len(reports))]
    same = before.n_rows == n and all(
        report.get("state", state) == state for report, state in zip(reports, wanted, strict=True)
    )
    if same and after.fingerprint() != before.fingerprint():
        same = after.n_rows >= n and after.stamps(size, n) == before.stamps(size, n)
    if not same:
        raise InputChanged(
            "input: files were changed, added or taken away while they were read. What was read is forgotten; run the "
            "same command again, best when nobody writes there"
        )
