"""Cost of a run after rows were appended, against a run on all rows: seconds by stage, kept blocks, recall.

    python -m tests.benchmarks.appended 1000000 [--share 0.01] [--data swiss_roll wide] [--folder DIR]

For each kind of data three jobs with output.keep run, each in a separate process: on n rows (its seconds are not
shown), on n rows and a share more in the same root, and on all these rows in another root. `wide` (10 dimensions in 50
features, as in tests.benchmarks.scaling) ends before the eigensolve, which takes the same time in both. `residual` is
the change of the earlier rows' coordinates that remains after alignment with the version before (metrics.json,
alignment).
"""

import argparse
import multiprocessing
import tempfile
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
import zarr

from lle.config.load import parse_input
from lle.config.models import Config
from lle.engine import checkpoint
from lle.engine.progress import RunProgress
from lle.jobs import run as runs
from lle.kernels.manifolds import sample
from lle.stages import registry
from lle.storage.store import Store
from tests.benchmarks.scaling import DATA, WIDE_BLOCK, wide_rows

SERIAL = {"kind": "serial"}
LAST = {"wide": "assemble_cost"}
HEADER = ("data", "points", "stage", "appended: seconds", "afresh: seconds", "times", "appended: blocks computed",
          "afresh: blocks computed", "points kept")  # fmt: skip


class Night(NamedTuple):
    """Cost and results of one job."""

    seconds: dict[str, float]
    computed: dict[str, int]
    n_kept: dict[str, int]
    recall: float
    residual: float | None


def write_points(data: str, folder: Path, n: int, total: int) -> None:
    """Write the first n rows of an array of `total` rows; an append changes only the last chunk."""
    blocks = [(start, min(start + WIDE_BLOCK, n)) for start in range(0, n, WIDE_BLOCK)]
    roll = sample("swiss_roll", 0, total, 7, 0.0, 0.0).points.astype(np.float32) if data == "swiss_roll" else None
    width = 3 if roll is not None else wide_rows(0, 1).shape[1]
    array = zarr.create_array(folder / "points.zarr", name="points", shape=(n, width), dtype="float32",
                              chunks=(WIDE_BLOCK, width), overwrite=True)  # fmt: skip
    for start, stop in blocks:
        array[start:stop] = roll[start:stop] if roll is not None else wide_rows(start, WIDE_BLOCK)[: stop - start]


class Clock(RunProgress):
    """Seconds of each stage."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds: dict[str, float] = {}

    def print_line(self, text: str) -> None: ...

    def end_stage(self, stage: str, seconds: float, peak_bytes: int) -> None:
        self.seconds[stage] = seconds


@contextmanager
def up_to(last: str | None) -> Iterator[None]:
    """Make jobs end after a stage."""
    names = list(registry.STAGES)
    stages = {name: registry.STAGES[name] for name in names[: names.index(last or names[-1]) + 1]}
    with mock.patch.object(registry, "STAGES", stages):
        yield


def night(data: str, folder: Path, root: str, workers: int) -> Night:
    """Run the job on the current input."""
    source = {"kind": "zarr", "url": str(folder / "points.zarr"), "array": "points"}
    config = Config.model_validate({
        "input": parse_input(source, ()), "output": {"store": str(folder / root), "keep": 2, "report": False},
        "embedding": {"align": "previous"}, "neighbors": {"min_recall": 0.0},
        "execution": {"cluster": {"kind": "local", "workers": workers, "memory": "3GiB"} if workers else SERIAL},
    })  # fmt: skip
    progress = Clock()
    with up_to(LAST.get(data)):
        result = runs.run(config, False, progress)
    store = Store(result.store)
    reports = checkpoint.read_reports(store)
    n_kept: dict[str, int] = {}
    for (stage, _), block_reports in reports.items():
        if stage == "ingest":  # rows are read or taken over, which other columns count
            continue
        n_kept[stage] = max(n_kept.get(stage, 0), sum(report.report.get("kept", 0) for report in block_reports))
    [recall] = reports["mend_graph", "measure_recall"]
    aligned = [
        part
        for block_reports in reports.get(("solve_embedding", "align"), [])
        for part in block_reports.report["components"]
    ]
    residual = aligned[0]["residual_after"] if aligned else None
    return Night(progress.seconds, result.computed, n_kept, recall.report["value"], residual)


def apart(*arguments: Any) -> Night:
    """Run `night` in a separate process, so that jobs share no memory and no compiled code."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(night, *arguments).result()


def compare(data: str, n: int, share: float, folder: Path, workers: int) -> list[str]:
    """Table rows of one kind of data."""
    total = n + round(share * n)
    write_points(data, folder, n, total)
    apart(data, folder, "grown", workers)
    write_points(data, folder, total, total)
    grown, afresh = apart(data, folder, "grown", workers), apart(data, folder, "afresh", workers)
    lines = []
    for stage in grown.seconds:
        seconds_grown, seconds_afresh = grown.seconds[stage], afresh.seconds[stage]
        n_kept = f"{grown.n_kept[stage]:,}" if grown.n_kept.get(stage) else ""
        blocks = [str(job.computed.get(stage, 0)) for job in (grown, afresh)]
        times = f"{seconds_afresh / max(seconds_grown, 0.05):.1f}"
        lines.append(
            (data, f"{total:,}", stage, f"{seconds_grown:.1f}", f"{seconds_afresh:.1f}", times, *blocks, n_kept)
        )
    both = [sum(job.seconds.values()) for job in (grown, afresh)]
    blocks = [str(sum(job.computed.values())) for job in (grown, afresh)]
    total_cells = [f"{seconds:.1f}" for seconds in both]
    lines.append((data, f"{total:,}", "all", *total_cells, f"{both[1] / both[0]:.1f}", *blocks, ""))
    summary = f"recall {grown.recall:.4f}, afresh {afresh.recall:.4f}"
    if grown.residual is not None:
        summary += f"; residual of the alignment {grown.residual:.2g}"
    return [*(f"| {' | '.join(cells)} |" for cells in lines), f"\n{data}: {summary}\n"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("points", type=int)
    parser.add_argument("--share", type=float, default=0.01)
    parser.add_argument("--data", nargs="+", choices=DATA, default=list(DATA))
    parser.add_argument("--workers", type=int, default=2, help="0: in one process")
    parser.add_argument("--folder", type=Path)
    arguments = parser.parse_args()
    for cells in (HEADER, ("---",) * len(HEADER)):
        print(f"| {' | '.join(cells)} |", flush=True)
    for data in arguments.data:
        with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
            print(
                "\n".join(compare(data, arguments.points, arguments.share, Path(folder), arguments.workers)), flush=True
            )


if __name__ == "__main__":
    main()
