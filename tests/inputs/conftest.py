"""The same points and labels in every input format, and a web server."""

import http.server
import threading
from functools import partial

import numpy as np
import pytest

from tests.support.input_files import D, N, write_frame, write_group, write_idx


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(211)
    return rng.integers(0, 200, (N, D)).astype(np.uint8), rng.integers(0, 7, N).astype(np.uint8)


@pytest.fixture(scope="module")
def inputs(data, tmp_path_factory):
    """name -> (kind, params) of the same points and labels in every format."""
    X, y = data
    folder = tmp_path_factory.mktemp("inputs")
    np.save(folder / "x.npy", X)
    np.save(folder / "xf.npy", np.asfortranarray(X))
    np.save(folder / "y.npy", y)
    for i, part in enumerate(np.split(X, [900, 901, 2000])):
        np.save(folder / f"part{i}.npy", part)
    np.savez(folder / "stored.npz", X=X, y=y)
    np.savez_compressed(folder / "deflated.npz", X=X, y=y)
    np.savez_compressed(folder / "by_columns.npz", X=np.asfortranarray(X), y=y)
    npy = {"labels": folder / "y.npy"}
    npz = {"key": "X", "labels": "y"}
    idx = {"labels": write_idx(folder / "y.gz", y, compress=True)}
    zarr_3 = write_group(folder / "3.zarr", X, y)
    return {
        "npy": ("npy", {"path": folder / "x.npy", **npy}),
        "npy by columns": ("npy", {"path": folder / "xf.npy", **npy}),
        "npy glob": ("npy", {"path": str(folder / "part*.npy"), **npy}),
        "npz": ("npz", {"path": folder / "stored.npz", **npz}),
        "npz deflated": ("npz", {"path": folder / "deflated.npz", "labels": "y"}),
        "npz by columns": ("npz", {"path": folder / "by_columns.npz", **npz}),
        "idx": ("idx", {"path": write_idx(folder / "x.idx", X.reshape(N, 1, D)), **idx}),
        "idx gzip": ("idx", {"path": write_idx(folder / "x.gz", X, compress=True), **idx}),
        "zarr 3": ("zarr", {"url": zarr_3, "array": "points", "labels": "label"}),
        "zarr 2": ("zarr", {"url": write_group(folder / "2.zarr", X, y, 2), "labels": "label"}),
        "parquet": ("parquet", {"path": write_frame(folder / "x.parquet", X, y), "label": "label"}),
        "csv": ("csv", {"path": write_frame(folder / "x.csv", X, y), "label": "label"}),
    }


@pytest.fixture
def web_server(tmp_path):
    """URL of a server for the files in tmp_path, which ignores requests for a part of a file."""
    quiet = type("Quiet", (http.server.SimpleHTTPRequestHandler,), {"log_message": lambda *args: None})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(quiet, directory=str(tmp_path))) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()
