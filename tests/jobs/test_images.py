"""Images of input rows on the two pages of the explorer: which ones, and how the shape is found and checked."""

import base64
import io
import json

import numpy as np
import pytest
from PIL import Image

from lle.jobs.served_run import Axes, load_run
from lle.stages import report_images
from lle.storage.store import Store
from tests.support.commands import lle, npy_config, refused, write_config
from tests.support.explorer_page import Scripts
from tests.support.input_files import write_idx

RUN = {"quality": {"sample": 50}, "neighbors": {"n_neighbors": 6}}


@pytest.fixture(scope="module")
def idx(tmp_path_factory):
    """A run on IDX images of 6 x 4 pixels whose row 3 equals row 9, and the images."""
    folder, rng = tmp_path_factory.mktemp("images"), np.random.default_rng(5)
    plane = rng.random((150, 2)) @ rng.random((2, 24))
    images = np.rint(255 * plane / plane.max()).astype(np.uint8).reshape(150, 6, 4)
    images[9] = images[3]
    write_idx(folder / "x-idx3-ubyte", images)
    config = write_config(folder, input={"kind": "idx", "path": str(folder / "x-idx3-ubyte")}, **RUN)
    lle("run", config, "--set", "output.report=true", "--set", "execution.block_points=64")
    return Store(str(folder / "run.zarr")), images, config


def page_images(store):
    """The points with images, and their images, as the browser cuts them out."""
    scripts = Scripts(store.objects.get("report/explore.html").decode()).by_id
    images = json.loads(scripts["content"])["images"]
    if images is None:
        return None
    points = np.frombuffer(base64.b64decode(scripts[f"data-{images['points']}"]), "<u4")
    tiles = np.asarray(Image.open(io.BytesIO(base64.b64decode(scripts[f"data-{images['png']}"]))))
    height, width = images["height"], images["width"]
    corners = [(place // images["columns"] * height, place % images["columns"] * width) for place in range(len(points))]
    return points, np.array([tiles[top : top + height, left : left + width] for top, left in corners])


def stretched(images):
    return np.rint((images - images.min()) * (255.0 / np.ptp(images)))


@pytest.mark.slow
def test_page_holds_the_images_of_idx_files(idx):
    store, images, _ = idx
    points, shown = page_images(store)
    assert points.tolist() == list(range(150))
    np.testing.assert_allclose(shown, stretched(images.astype(float)), atol=1)


def test_served_image_is_that_of_the_row(idx):
    store, images, _ = idx
    run = load_run(store)
    for row in (0, 9, 149):
        served = np.asarray(Image.open(io.BytesIO(run.image(row))))
        np.testing.assert_allclose(served, stretched(images.astype(float))[row], atol=1)
    with pytest.raises(ValueError, match="row 150 has no image"):
        run.image(150)
    assert run.row(Axes(0, 1, -1), 9)["row"] == 9


def test_a_sample_takes_few_blocks_and_fits_the_sheet(idx, monkeypatch):
    store = idx[0]
    monkeypatch.setattr(report_images, "READ_BLOCKS", 2)
    monkeypatch.setattr(report_images, "most_thumbnails", lambda shape: 20)
    rows = np.arange(1, 150, 2)
    sheet = report_images.page_images(store, rows)
    assert len(sheet.points) == 20
    assert len(np.unique(rows[sheet.points] // 64)) == 2


@pytest.mark.slow
def test_shape_from_the_config(tmp_path, rng):
    config = npy_config(tmp_path, rng.random((90, 2)) @ rng.random((2, 12)), **RUN)
    assert lle("validate", config)["image_shape"] is None
    colored = ("--set", "output.image_shape=[2,2,3]")
    assert lle("validate", config, *colored)["image_shape"] == [2, 2, 3]
    lle("run", config, *colored, "--set", "output.report=true")
    store = Store(str(tmp_path / "run.zarr"))
    assert page_images(store)[1].shape == (90, 2, 2, 3)
    again = lle("run", config, "--set", "output.image_shape=[3,4]", "--set", "output.report=true")
    assert again["blocks_computed"] == {"write_report": 1}
    assert page_images(store)[1].shape == (90, 3, 4)
    lle("run", config, "--set", "output.report=true")
    assert page_images(store) is None


def test_shape_that_does_not_fit_is_refused_before_anything_is_erased(tmp_path, rng):
    config = npy_config(tmp_path, rng.random((90, 12)), **RUN)
    lle("run", config)
    for shape in ("[28,28]", "[3,2,2]", "[12]", "[2,2,3,1]", "[-3,-4]", "[3.5,4]", "12"):
        for command in (("validate", config), ("run", config, "--fresh"), ("plan", config)):
            assert "output.image_shape" in refused(2, *command, "--set", f"output.image_shape={shape}"), shape
    assert lle("status", tmp_path / "run.zarr")["state"] == "done"


def test_chosen_pixels_are_no_images(idx):
    assert lle("validate", idx[2])["image_shape"] == [6, 4]
    assert lle("validate", idx[2], "--set", "input.columns=[0,1,2,3]")["image_shape"] is None
