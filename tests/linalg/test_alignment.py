"""embedding.align: coordinates of unchanged points stay, and metrics report other changes."""

import os

import numpy as np
import pytest
import zarr
from scipy.stats import ortho_group
from typer.testing import CliRunner

from lle.cli.commands import app
from lle.inputs.row_filter import even_sample
from lle.linalg.alignment import align
from lle.storage.store import Store
from lle.storage.versions import published_url
from tests.support.aligned_job import Job, rms
from tests.support.commands import lle
from tests.support.points import bowl

TURN = np.array([[np.cos(2.0), np.sin(2.0)], [np.sin(2.0), -np.cos(2.0)]])  # turns and mirrors


@pytest.fixture
def job(tmp_path, rng):
    return Job(tmp_path / "job", bowl(900, rng))


@pytest.mark.parametrize("rng", [19], indirect=True)
def test_plan_without_align_has_no_align_step(job):
    job.run()
    assert job.alignment() is None
    assert not {"_work/rotation.npz", "_previous/embedding.npz"} & set(job.store.objects.names(""))


@pytest.mark.parametrize("scale", [pytest.param("unit_covariance", marks=pytest.mark.slow), "unit_norm"])
@pytest.mark.parametrize("rng", [19], indirect=True)
def test_run_is_aligned_with_the_last_embedding_of_its_store(job, scale):
    """The test rotates the stored embedding; the next solution is rotated onto it."""
    job.run(f"embedding.scale={scale}")
    turned = job.embedding() @ TURN
    Store(job.store.url).write("embedding", 0, turned)
    job.run(f"embedding.scale={scale}", "embedding.align=previous", "eigensolver.tol=1e-9")
    np.testing.assert_allclose(job.embedding(), turned, atol=1e-6 * np.abs(turned).max())
    alignment = job.alignment()
    [component] = alignment["components"]
    assert (alignment["previous"], component["rows_shared"], component["previous_component"]) == ("this store", 900, 0)
    np.testing.assert_allclose(component["rotation"], TURN, atol=1e-6)
    assert component["residual_after"] < 1e-6 < component["residual_before"]
    assert component["size_ratio"] == pytest.approx(1.0)


@pytest.mark.parametrize("rng", [19], indirect=True)
def test_plan_counts_the_rows_of_the_other_store(job, tmp_path, rng):
    job.run()
    part = Job(tmp_path / "part", bowl(300, rng))
    alone, with_other = (
        next(
            step["bytes_per_task"]
            for step in lle("plan", part.config, "--set", f"embedding.align={align}")["steps"]
            if step["step"] == "align"
        )
        for align in ("previous", job.store.url)
    )
    assert with_other - alone == 600 * (24 * 2 + 100)


@pytest.mark.slow
@pytest.mark.parametrize("rng", [83, 211], indirect=True)
def test_appended_rows_do_not_rotate_earlier_rows(tmp_path, rng):
    points = bowl(1010, rng)
    first_job, free_job = Job(tmp_path / "first", points[:1000]), Job(tmp_path / "free", points)
    aligned_job = Job(tmp_path / "held", points)
    first_job.run()
    free_job.run()
    aligned_job.run(f"embedding.align={first_job.store.url}")
    earlier, unaligned, aligned = first_job.embedding(), free_job.embedding(), aligned_job.embedding()
    [component] = aligned_job.alignment()["components"]
    assert component["rows_shared"] == 1000
    size = rms(earlier)
    assert component["residual_before"] == pytest.approx(rms(unaligned[:1000] - earlier) / size)
    assert component["residual_after"] == pytest.approx(rms(aligned[:1000] - earlier) / size)
    assert component["residual_after"] < min(0.1, 1.0001 * component["residual_before"])
    np.testing.assert_allclose(aligned, unaligned @ np.array(component["rotation"]), atol=1e-12 * size)
    np.testing.assert_allclose(aligned.T @ aligned / 1010, np.eye(2), atol=1e-8)  # still of unit covariance


@pytest.mark.slow
@pytest.mark.parametrize("rng", [19], indirect=True)
def test_each_run_is_aligned_with_the_one_before(job, rng):
    job.run("embedding.align=previous")
    assert job.alignment()["reason"] == "no earlier embedding"
    first = job.embedding()
    assert not job.run("embedding.align=previous")["blocks_computed"]
    np.testing.assert_array_equal(job.embedding(), first)
    points = np.load(job.path)
    for number in (1, 2):
        job.put(np.concatenate([points, bowl(9 * number, rng)]))
        previous = job.embedding()
        job.run("embedding.align=previous")
        [component] = job.alignment()["components"]
        assert component["rows_shared"] == 900
        change = rms(job.embedding()[:900] - previous[:900]) / rms(previous[:900])
        assert component["residual_after"] == pytest.approx(change)
        assert component["residual_after"] < 0.1


@pytest.mark.parametrize("rng", [19], indirect=True)
def test_changed_rows_are_not_used_for_the_alignment(job, rng):
    job.run()
    points = np.load(job.path)
    changed = rng.permutation(900)[:100]
    points[changed] = bowl(100, rng)
    job.put(points[10:])  # all rows have other positions
    os.utime(job.path, (1, 2))
    job.run("embedding.align=previous")
    [component] = job.alignment()["components"]
    assert component["rows_shared"] == 890 - (changed >= 10).sum()
    assert component["residual_after"] < 0.3


@pytest.mark.parametrize("rng", [19], indirect=True)
def test_rows_of_a_sample_are_compared_by_their_values(tmp_path, rng):
    """A row has other positions in other samples, and in the whole input."""
    points = bowl(900, rng)
    whole, job = Job(tmp_path / "whole", points), Job(tmp_path / "sampled", points)
    whole.run()
    for size, previous in ((600, whole.store.url), (700, "previous")):
        job.run(f"input.fit_sample={size}", f"embedding.align={previous}")
        [component] = job.alignment()["components"]
        earlier = even_sample(900, 600) if previous == "previous" else np.arange(900)
        assert component["rows_shared"] == len(np.intersect1d(earlier, even_sample(900, size)))
        assert component["residual_after"] < 0.3
    job.run("input.fit_sample=600")
    job.run("input.fit_sample=700", "embedding.align=previous")
    assert job.alignment()["components"][0]["rows_shared"] == component["rows_shared"]
    whole.run(f"embedding.align={job.store.url}")
    assert whole.alignment()["components"][0]["rows_shared"] == 700


@pytest.mark.slow
@pytest.mark.parametrize("rng", [19], indirect=True)
def test_large_residual_after_alignment_is_a_warning(job, rng):
    """The earlier coordinates are noise, so no rotation matches them."""
    job.run("embedding.align=previous")
    Store(job.store.url).write("embedding", 0, rng.normal(size=(900, 2)))
    defects = job.run("embedding.align=previous", "eigensolver.tol=1e-9")["metrics"]["defects"]
    assert any("of component 0 changed" in text for text in defects)


@pytest.mark.slow
@pytest.mark.parametrize("rng", [19], indirect=True)
def test_kill_during_write_keeps_the_last_complete_embedding(job, monkeypatch):
    """The store holds parts of two embeddings; the complete copy is used."""
    job.run("embedding.align=previous")
    turned = job.embedding() @ TURN
    store = Store(job.store.url)
    store.write("embedding", 0, turned)
    job.run("embedding.align=previous", "eigensolver.tol=1e-9")  # saves a copy of the rotated embedding
    store.objects.delete("embedding/c/1/0")
    job.run("embedding.align=previous", "eigensolver.tol=1e-7")
    np.testing.assert_allclose(job.embedding(), turned, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("rng", [19], indirect=True)
def test_alignment_ignores_embeddings_that_did_not_converge(tmp_path, rng):
    """Another store is refused; in the same store the embedding before it is used."""
    points, short = bowl(620, rng), ("eigensolver.method=multigrid", "eigensolver.max_steps=1")
    job, previous = Job(tmp_path / "job", points[:600]), "embedding.align=previous"
    job.fails(3, previous, *short)
    assert job.alignment()["reason"] == "no earlier embedding"
    job.run(previous)
    assert job.alignment()["reason"] == "no earlier embedding"
    converged = job.embedding()
    job.put(points)
    job.fails(3, previous, *short)
    unconverged = job.embedding()
    assert rms(unconverged[:600] - converged) > 0.005
    other_job = Job(tmp_path / "other", points)
    assert "none whose eigenpairs converged" in other_job.fails(2, f"embedding.align={job.store.url}")
    job.run(previous)
    [component] = job.alignment()["components"]
    assert component["rows_shared"] == 600
    assert component["residual_after"] == pytest.approx(rms(job.embedding()[:600] - converged) / rms(converged))


@pytest.mark.parametrize("rng", [19], indirect=True)
@pytest.mark.slow
def test_components_are_matched_by_their_points(tmp_path, rng):
    """The smaller component becomes the larger one, so the two exchange their numbers."""
    small, large = bowl(300, rng), np.array([50.0, 0.0, 0.0]) + bowl(330, rng)
    first = Job(tmp_path / "first", np.concatenate([small, large]))
    first.run()
    second = Job(tmp_path / "second", np.concatenate([small, large, bowl(60, rng)]))
    second.run(f"embedding.align={first.store.url}")
    components = second.alignment()["components"]
    shared = [(entry["component"], entry["previous_component"], entry["rows_shared"]) for entry in components]
    assert shared == [(0, 1, 300), (1, 0, 330)]
    before, after = first.embedding(), second.embedding()
    assert rms(after[300:630] - before[300:630]) < 1e-5  # these points and their neighbours are the same
    assert rms(after[:300] - before[:300]) < 0.5
    assert components[0]["residual_after"] <= components[0]["residual_before"]


@pytest.mark.slow
@pytest.mark.parametrize("rng", [19], indirect=True)
def test_every_method_can_be_aligned(tmp_path, rng):
    points = rng.normal(size=(400, 3)) * [3.0, 2.0, 1.0]
    job = Job(tmp_path / "job", points)
    job.run("method=pca", "embedding.align=previous")
    previous = job.embedding()
    job.put(np.concatenate([points, rng.normal(size=(8, 3))]))
    job.run("method=pca", "embedding.align=previous")
    [component] = job.alignment()["components"]
    assert component["rows_shared"] == 400
    assert rms(job.embedding()[:400] - previous) < 0.1


@pytest.mark.parametrize("rng", [19], indirect=True)
def test_different_number_of_coordinates_is_reported(job):
    job.run("embedding.align=previous")
    job.run("embedding.align=previous", "eigensolver.n_components=3")
    alignment = job.alignment()
    assert alignment["reason"] == "the earlier embedding has 2 coordinates, this one 3"
    assert alignment["components"] == []


@pytest.mark.parametrize("is_foreign", [False, True])
@pytest.mark.parametrize("command", ["run", "validate", "plan"])
def test_a_place_without_a_run_is_refused(tmp_path, command, is_foreign):
    job, place = Job(tmp_path / "job", bowl(300, np.random.default_rng(3))), f"{tmp_path}/none.zarr"
    if is_foreign:
        zarr.create_group(place)
    result = CliRunner().invoke(app, [command, str(job.config), "--set", f"embedding.align={place}"])
    assert result.exit_code == 2
    assert "embedding.align: expected the store of a finished run" in result.output
    assert ("of another program" in result.output) == is_foreign


@pytest.mark.slow
@pytest.mark.parametrize("rng", [83], indirect=True)
def test_new_version_is_aligned_with_the_published_one(tmp_path, rng):
    points, output = bowl(1010, rng), {"report": False, "keep": 2}
    job = Job(tmp_path / "job", points[:1000], output=output)
    first = job.run("embedding.align=previous")
    before = published(job).read_all("embedding")
    assert first["metrics"]["alignment"]["reason"] == "no earlier embedding"
    job.put(points)
    [component] = job.run("embedding.align=previous")["metrics"]["alignment"]["components"]
    after = published(job).read_all("embedding")
    assert (len(before), len(after), component["rows_shared"]) == (1000, 1010, 1000)
    assert component["residual_after"] == pytest.approx(rms(after[:1000] - before) / rms(before))
    assert component["residual_after"] < component["residual_before"]
    np.save(tmp_path / "new.npy", points[1000:])
    assert lle("transform", job.store.url, tmp_path / "new.npy", tmp_path / "y.npy")["rows"] == 10
    np.testing.assert_allclose(np.load(tmp_path / "y.npy")[:, :2], after[1000:], atol=1e-9)


def published(job: Job) -> Store:
    return Store(published_url(job.store.url))


@pytest.mark.parametrize("m", [1, 2, 5])
def test_known_rotation_is_recovered(rng, m):
    planted = ortho_group.rvs(m, random_state=rng) if m > 1 else np.array([[-1.0]])
    new = rng.normal(size=(60, m))
    aligned = align(new, new @ planted)
    np.testing.assert_allclose(aligned.rotation, planted, atol=1e-12)
    assert aligned.residual_after < 1e-13
    residual_before = np.linalg.norm(new - new @ planted) / np.linalg.norm(new)
    assert aligned.residual_before == pytest.approx(residual_before)


@pytest.mark.parametrize("n_rows", [0, 1])
def test_too_few_rows_give_no_rotation(rng, n_rows):
    new = rng.normal(size=(n_rows, 2))
    assert align(new, new) is None


def test_unrelated_coordinates_give_no_rotation():
    assert align(np.array([[1.0, 0.0], [-1.0, 0.0]]), np.array([[0.0, 2.0], [0.0, -2.0]])) is None
