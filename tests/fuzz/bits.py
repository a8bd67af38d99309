"""Single flipped bits in finished stores: each is detected, repaired, or changes no command's result."""

import json
import os
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np

from lle.api.open_run import open_run
from lle.core.errors import ConfigError, StoreError
from lle.jobs.served_run import load_run
from lle.storage.versions import reading
from tests.fuzz.campaign import BrokenRule, Limits
from tests.fuzz.commands import call, write
from tests.fuzz.mutate import choose

LIMITS = Limits(seconds=20, n_bytes=500 * 2**20)
CONFIG = (
    "input: {kind: synthetic, name: s_curve, n_points: 30}\nquality: {sample: 10, geodesic_sources: 0}\n"
    "neighbors: {n_neighbors: 5}\nweights: {reg: 1.0e-3}\neigensolver: {method: shift_invert}\n"
    "execution: {block_points: 16, cluster: {kind: serial}}\noutput: {store: none, report: false}\n"
)
STORES = ("run.zarr", "root.zarr")
CHANGING = {"seconds", "begun", "when", "finished", "last_failure", "peak_bytes", "picture", "version"}
"""Keys of results that differ from run to run, or after `lle report`."""
Reader = Callable[[Path, Path], object]


def prepare(shared: Path) -> None:
    """A finished store, a root of two versions, and what each command says of both."""
    write(shared / "config.yaml", CONFIG)
    np.save(shared / "new.npy", np.random.default_rng(3).normal(size=(3, 3)))
    for name in STORES:
        for _ in range(2 if name == "root.zarr" else 1):
            assert run_again(shared, shared / name), "the run of the undamaged store"
            write(shared / "config.yaml", CONFIG.replace("n_neighbors: 5", "n_neighbors: 6"))
        write(shared / "config.yaml", CONFIG)
    run_again(shared, shared / "root.zarr")
    for name in STORES:
        for command, read in READERS.items():
            write(shared / f"{name}.{command}", as_text(read(shared, shared / name), shared / name))


def run(rng: np.random.Generator, shared: Path, own: Path) -> str:
    """Flip one bit; then call two commands, and run."""
    name = choose(rng, STORES)
    store = own / name
    shutil.copytree(shared / name, store, copy_function=os.link)
    files = sorted(path for path in store.rglob("*") if path.is_file())
    path = choose(rng, [path for path in files if path.stat().st_size])
    data = bytearray(path.read_bytes())
    bit = int(rng.integers(8 * len(data)))
    data[bit // 8] ^= 1 << bit % 8
    path.unlink()  # the file is shared with the undamaged store
    path.write_bytes(data)
    commands = [*rng.choice(list(SHARES), 2, replace=False, p=list(SHARES.values())).tolist(), "run"]
    try:
        return ", ".join(f"{command} {_compared(command, shared, store)}" for command in commands)
    except BrokenRule as error:
        where = f"{path.relative_to(own)}, bit {bit}: ...{bytes(data[max(0, bit // 8 - 30) : bit // 8 + 30])!r}..."
        raise BrokenRule(f"{error}\n{where}\n{commands}") from error.__cause__


def _compared(command: str, shared: Path, store: Path) -> str:
    try:
        result = READERS[command](shared, store)
    except (StoreError, ConfigError, UserWarning) as error:
        return f"raised {type(error).__name__}"
    if result is None:
        return "refused"
    if command == "run":
        return "ended"
    expected, found = (shared / f"{store.name}.{command}").read_text(), as_text(result, store)
    answered = json.loads(found)
    if (command == "status" and answered["state"] != "done") or (command == "verify" and answered["unfinished"]):
        return "not done"
    if (answered["metrics"] or {} if command == "open_run" else answered if command == "report" else {}).get("stopped"):
        return "not finished"
    if expected != found:
        at = next((at for at, (one, other) in enumerate(zip(expected, found, strict=False)) if one != other), 0)
        shown = [text[max(0, at - 100) : at + 100] for text in (expected, found)]
        raise BrokenRule(f"{command} ended with 0 and another result: {shown[0]} became {shown[1]}")
    return "equal"


def as_text(result: object, store: Path) -> str:
    """A result as JSON text without times and paths."""
    if isinstance(result, dict):
        result = _untimed(result)
    return json.dumps(result, sort_keys=True, default=_plain).replace(str(store), "STORE")


def _untimed(value: object) -> object:
    if isinstance(value, dict):
        return {key: _untimed(item) for key, item in value.items() if key not in CHANGING}
    return [_untimed(item) for item in value] if isinstance(value, list) else value


def _plain(value: object) -> object:
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else str(value)


def answer(*arguments: object) -> dict[str, object] | None:
    """The answer of a command; None if it ended with an error."""
    ended = call(*arguments)
    return ended.answer if ended.code == 0 else None


def run_again(shared: Path, store: Path) -> dict[str, object] | None:
    keep = ["--set", "output.keep=2"] if store.name == "root.zarr" else []
    return answer("run", shared / "config.yaml", "--store", store, *keep)


def _run_and_export(shared: Path, store: Path) -> object:
    """Run and export, up to three times, with verify in between."""
    for attempt in range(3):
        result = run_again(shared, store)
        if result is not None and (embedding := export(shared, store)) is not None:
            if as_text(embedding, store) != (shared / f"{store.name}.export").read_text():
                raise BrokenRule(f"run and export ended with 0 at attempt {attempt}, with another embedding")
            return {}
        call("verify", store)
    raise BrokenRule("three runs with verify in between did not repair the store")


def export(shared: Path, store: Path) -> object:
    out = store.parent / "embedding.csv"
    ended = answer("export", store, out)
    return None if ended is None else [ended["rows"], out.read_text()]


def _transform(shared: Path, store: Path) -> object:
    out = store.parent / "placed.csv"
    return None if answer("transform", store, shared / "new.npy", out) is None else [out.read_text()]


def _report(shared: Path, store: Path) -> object:
    if answer("report", store) is None:
        return None
    with reading(str(store)) as opened:
        return opened.metrics()


def _open_run(shared: Path, store: Path) -> object:
    with warnings.catch_warnings():
        warnings.filterwarnings("error", ".*the published version is damaged")
        run = open_run(str(store))
    arrays = {name: array.compute() for name, array in run.arrays.items() if not name.startswith("_work")}
    return {"arrays": arrays, "metrics": run.metrics, "config": {**run.config, "output": None}}


def _explore(shared: Path, store: Path) -> object:
    with reading(str(store)) as opened:
        served = load_run(opened)
    return {column.name: column.values for column in served.columns}


SHARES = {
    "status": 0.2,
    "verify": 0.15,
    "export": 0.2,
    "transform": 0.12,
    "report": 0.03,
    "open_run": 0.15,
    "explore": 0.15,
}
"""How often each command is called: a report takes ten times as long as the others."""
READERS: dict[str, Reader] = {
    "status": lambda shared, store: answer("status", store),
    "verify": lambda shared, store: answer("verify", store),
    "export": export,
    "transform": _transform,
    "report": _report,
    "open_run": _open_run,
    "explore": _explore,
    "run": _run_and_export,
}
