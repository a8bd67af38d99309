"""Damaged stores: every command ends with a documented exit code, and with 0 only if the embedding is the right one."""

import json
import shutil
from pathlib import Path

import numpy as np

from tests.fuzz.campaign import BrokenRule, Limits
from tests.fuzz.commands import Ended, call, write
from tests.fuzz.mutate import choose, mutated_bytes, mutated_tree

LIMITS = Limits(seconds=20, n_bytes=500 * 2**20)
WRONG = (b"", b"{}", b"[]", b"7", b'"x"', b"null", b"{" * 5000, b"[" * 100_000, b'{"fingerprint": 5, "n_blocks": -1}')
CONFIG = (
    "input: {kind: synthetic, name: s_curve, n_points: 90}\nquality: {sample: 20}\nneighbors: {n_neighbors: 6}\n"
    "weights: {reg: 1.0e-3}\nexecution: {block_points: 45, cluster: {kind: serial}}\n"
    "output: {store: none, report: false}\n"
)


def prepare(shared: Path) -> None:
    """A finished store, a root of two versions, and the embedding of both."""
    config = write(shared / "config.yaml", CONFIG)
    call("run", config, "--store", shared / "run.zarr", codes=(0,))
    for n_neighbors in (7, 6):
        call(
            "run",
            config,
            "--store",
            shared / "root.zarr",
            "--set",
            "output.keep=2",
            "--set",
            f"neighbors.n_neighbors={n_neighbors}",
            codes=(0,),
        )
    call("export", shared / "run.zarr", shared / "embedding.npy", codes=(0,))
    call("export", shared / "root.zarr", shared / "published.npy", codes=(0,))
    np.testing.assert_array_equal(np.load(shared / "embedding.npy"), np.load(shared / "published.npy"))


def run(rng: np.random.Generator, shared: Path, own: Path) -> str:
    """Damage one to three files, then call a sequence of commands."""
    name = choose(rng, ["run.zarr", "run.zarr", "root.zarr"])
    store = own / name
    shutil.copytree(shared / name, store)
    damaged = [damage(rng, store) for _ in range(int(rng.integers(1, 4)))]
    try:
        return _commands(rng, shared, own, store)
    except BrokenRule as error:
        raise BrokenRule(f"{error}\ndamaged: {damaged}") from error.__cause__


def damage(rng: np.random.Generator, store: Path) -> str:
    """Change, delete, exchange or add one file; returns what was done."""
    files = sorted(path for path in store.rglob("*") if path.is_file())
    records = [path for path in files if path.suffix == ".json"]
    path = choose(rng, records if rng.random() < 0.6 and records else files)
    name, action = str(path.relative_to(store)), rng.random()
    if action < 0.15:
        path.unlink()
        return f"{name} deleted"
    if action < 0.25:
        other = choose(rng, files)
        path.write_bytes(other.read_bytes())
        return f"{name} replaced by {other.relative_to(store)}"
    if action < 0.3:
        path.unlink()
        path.mkdir()
        return f"{name} became a folder"
    data = path.read_bytes()
    if path.suffix == ".json" and action < 0.75:
        data = choose(rng, WRONG) if action < 0.45 else _other_json(rng, data)
    else:
        data = mutated_bytes(rng, data)
    path.write_bytes(data)
    return f"{name} = {data[:300]!r}"


def _other_json(rng: np.random.Generator, data: bytes) -> bytes:
    try:
        tree = json.loads(data)
    except ValueError:  # damaged before
        return data
    return json.dumps(mutated_tree(rng, tree)).encode("utf-8", "surrogatepass")


def _commands(rng: np.random.Generator, shared: Path, own: Path, store: Path) -> str:
    run_again = ["run", shared / "config.yaml", "--store", store]
    run_again += ["--set", "output.keep=2"] if store.name == "root.zarr" else []
    verified, done = False, []
    for command in _order(rng):
        if command == "run":
            ended = call(*run_again, codes=(0, 1, 2, 3))
            if ended.code == 0 and verified:
                _check_export(shared, own, store, "after verify and run", must=True)
        elif command == "export":
            ended = _check_export(shared, own, store, f"after {done}")
        elif command == "fresh":
            ended = call(*run_again, "--fresh")
            if ended.code:
                raise BrokenRule(f"run --fresh after {done}: {ended.answer}")
            _check_export(shared, own, store, "after run --fresh", must=True)
        elif command == "transform":
            ended = call("transform", store, shared / "embedding.npy", own / f"new{len(done)}.npy")
        else:
            ended = call(command, store)
            verified = command == "verify" and ended.answer.get("error") in (None, "StoreError", "CorruptChunk")
        done.append(f"{command} {ended.code}")
    return ", ".join(done)


def _order(rng: np.random.Generator) -> list[str]:
    orders = (
        ["verify", "run"],
        ["status", "run"],
        ["export", "verify", "run"],
        ["run", "export"],
        ["report", "status"],
        ["transform", "run"],
        ["run", "verify", "run"],
        ["status", "verify"],
        ["export", "fresh"],
    )
    return choose(rng, orders)


def _check_export(shared: Path, own: Path, store: Path, when: str, must: bool = False) -> Ended:
    out = own / "embedding.npy"
    ended = call("export", store, out)
    if ended.code and must:
        raise BrokenRule(f"no export {when}: {ended.answer}")
    if ended.code == 0 and out.read_bytes() != (shared / "embedding.npy").read_bytes():
        raise BrokenRule(f"export {when} ended with 0, but the embedding is another one")
    return ended
