"""Seconds of the tiles of `lle explore`: a view of the size of a screen, panned at several zoom levels.

    python -m tests.benchmarks.explore [--points 10000000] [--repeat 5]

The embedding is drawn at random (ten clouds, one for each class) and written into the store of a finished run.
"""

import argparse
import http.client
import json
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlencode, urlsplit

import numpy as np
import psutil

from lle.storage import array_specs
from lle.storage.array_specs import PlannedArray
from lle.storage.store import Store
from tests.support.commands import lle, write_config

SIZE = (1200, 700)
ZOOMS = (1, 2, 4, 16, 64, 1024)
COLORS = {"class": 2, "value": 0, "density": -1}
BLOCK = 2**18


class Request(NamedTuple):
    """Median and longest seconds of the answers, and mean processor seconds of the server for each."""

    median: float
    longest: float
    processor: float


def store_of(n_points: int, folder: Path) -> Store:
    """A finished run whose embedding, components and labels are replaced by those of n_points rows in ten clouds."""
    rng = np.random.default_rng(11)
    np.savez(folder / "x.npz", x=rng.random((600, 3)), y=np.arange(600) % 10)
    source = {"kind": "npz", "path": str(folder / "x.npz"), "key": "x", "labels": "y"}
    lle("run", write_config(folder, input=source), "--set", "method=pca")
    store = Store(str(folder / "run.zarr"))
    specs = {
        array_specs.EMBEDDING: 2,
        array_specs.COMPONENT: None,
        array_specs.LABEL: 1,
        array_specs.REPRESENTATIVE: None,
        array_specs.RAW: 3,
    }
    block = min(BLOCK, n_points)
    for spec, width in specs.items():
        dtype = "float64" if spec is array_specs.RAW else spec.dtype.partition(" ")[0]
        store.create(PlannedArray(spec, (n_points, *([] if width is None else [width])), dtype, block))
    for start in range(0, n_points, block):
        classes = rng.integers(0, 10, min(block, n_points - start))
        centers = np.column_stack([np.cos(classes), np.sin(classes)])
        store.write(array_specs.EMBEDDING.name, start, centers + rng.normal(scale=0.3, size=centers.shape))
        store.write(array_specs.COMPONENT.name, start, np.zeros(len(classes), np.int32))
        store.write(array_specs.REPRESENTATIVE.name, start, np.arange(start, start + len(classes)))
        store.write(array_specs.LABEL.name, start, classes[:, None].astype(float))
        store.write(array_specs.RAW.name, start, rng.random((len(classes), 3)))
    return store


class Served:
    """The running command: `get` answers a request, `process` is the server."""

    def __init__(self, url: str, process: psutil.Process) -> None:
        self.process, self._path = process, urlsplit(url).path
        self._connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=300)

    def get(self, name: str, **query: object) -> bytes:
        common = {"x": 0, "y": 1, "component": -1, "color": -1, "dark": 0, "selection": 0}
        self._connection.request("GET", f"{self._path}{name}?{urlencode({**common, **query})}")
        answer = self._connection.getresponse()
        content = answer.read()
        if answer.status != 200:
            raise RuntimeError(content.decode())
        return content

    def close(self) -> None:
        self._connection.close()


@contextmanager
def serving(store: Store) -> Iterator[Served]:
    command = [sys.executable, "-m", "lle", "explore", store.url, "--no-browser", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        served = Served(json.loads(process.stdout.readline())["url"], psutil.Process(process.pid))
        try:
            yield served
        finally:
            served.close()
            process.send_signal(signal.SIGINT)
            process.communicate()


def measure(served: Served, name: str, queries: list[dict[str, object]]) -> Request:
    seconds, before = [], sum(served.process.cpu_times()[:2])
    for query in queries:
        started = time.perf_counter()
        served.get(name, **query)
        seconds.append(time.perf_counter() - started)
    processor = (sum(served.process.cpu_times()[:2]) - before) / len(queries)
    return Request(float(np.median(seconds)), max(seconds), processor)


def pans(view: list[float], zoom: int, repeat: int, color: int) -> list[dict[str, object]]:
    """Views about the densest cloud, each moved by a tenth of its width."""
    width, height = (view[1] - view[0]) / zoom, (view[3] - view[2]) / zoom
    middle = (1.0, 0.0) if zoom > 1 else ((view[0] + view[1]) / 2, (view[2] + view[3]) / 2)
    lefts = [middle[0] - width / 2 + 0.1 * width * step for step in range(repeat)]
    return [
        {
            "part": f"{left},{left + width},{middle[1] - height / 2},{middle[1] + height / 2}",
            "color": color,
            "size": f"{SIZE[0]},{SIZE[1]}",
        }
        for left in lefts
    ]


def study(n_points: int, repeat: int, folder: Path) -> Iterator[str]:
    """Lines of a table: request, zoom, median and longest seconds, processor seconds."""
    store = store_of(n_points, folder)
    started = time.perf_counter()
    with serving(store) as served:
        loaded = time.perf_counter() - started
        view = json.loads(served.get("fit.json"))["view"]
        measure(served, "tile.png", pans(view, 1, 1, -1))  # places the points
        yield f"start {loaded:.1f} s, with the first picture {time.perf_counter() - started:.1f} s"
        for name, color in COLORS.items():
            yield _line(f"first tile, colour by {name}", 1, measure(served, "tile.png", pans(view, 1, 1, color)))
            for zoom in ZOOMS:
                yield _line(
                    f"tile, colour by {name}", zoom, measure(served, "tile.png", pans(view, zoom, repeat, color))
                )
        at = [{"at": f"{1 + step / 50},0", "reach": "0.01,0.01"} for step in range(repeat)]
        yield _line("row under the pointer", 1, measure(served, "near.json", list(at)))
        corners = "{0},{2},{1},{2},{1},{3},{0},{3}".format(*view)
        yield _line(
            "selection of all rows", 1, measure(served, "select.json", [{"change": "replace", "polygon": corners}])
        )
        peak = next(
            line
            for line in Path(f"/proc/{served.process.pid}/status").read_text().splitlines()
            if line.startswith("VmHWM")
        )
        yield f"peak memory {int(peak.split()[1]) / 2**20:.2f} GiB"


def _line(name: str, zoom: int, request: Request) -> str:
    return f"| {name} | {zoom} | {request.median:.3f} | {request.longest:.3f} | {request.processor:.3f} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--points", type=int, default=10_000_000)
    parser.add_argument("--repeat", type=int, default=5)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for line in study(arguments.points, arguments.repeat, Path(folder)):
            print(line, flush=True)


if __name__ == "__main__":
    main()
