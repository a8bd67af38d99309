"""`lle suggest`: the dimension of known manifolds, reproducible choices, and limits of a sample."""

import json
import os
import signal
import subprocess
import sys

import numpy as np
import pytest
import yaml
from typer.testing import CliRunner

from pipeline.cli.commands import app
from pipeline.config.models import Config, load_config
from pipeline.jobs import suggest as suggestions
from pipeline.jobs.suggest import Candidate, choose
from pipeline.jobs.suggest_trial import Trial, faithfulness
from pipeline.kernels.manifolds import sample
from pipeline.kernels.quality.intrinsic_dimension import Dimension

SLANTED = np.random.default_rng(12).random((900, 2)) @ np.ones((2, 3)) + np.eye(3)[0]
SLANTED[:, 1] += np.random.default_rng(13).random(900)


@pytest.fixture(scope="module", autouse=True)
def few_candidates():
    """Each is a run."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(suggestions, "NEIGHBORS", (4, 8, 30))
        yield


def config_of(name="swiss_roll", n=20_000, **sections):
    source = {"kind": "synthetic", "name": name, "n_points": n}
    return Config.model_validate({"input": source, "output": {"store": "never-made.zarr"}, **sections})


def candidate(k, scores, trial=None):
    both = np.asarray(scores, float)
    nothing = Dimension(2.0, 1.9, 2.1)
    trial = trial or Trial(1, 1, np.ones(len(both), bool), both, both)
    return Candidate(k, 1e-3, nothing, (0.1, 0.1, 0.1), trial)


class TestChoice:
    def test_first_candidate_not_worse_than_the_best_is_chosen(self):
        rng = np.random.default_rng(5)
        base = rng.uniform(0.5, 0.9, 400)
        worse, equal, best = base - 0.05, base + 0.0995, base + 0.1
        found = choose([candidate(k, scores) for k, scores in ((6, worse), (8, equal), (10, best), (12, best))])
        assert found.n_neighbors == 8
        assert choose([candidate(6, worse), candidate(10, best)]).n_neighbors == 10

    def test_candidates_are_compared_point_by_point(self):
        """Points differ much more than candidates; a difference within the noise must not decide."""
        rng = np.random.default_rng(6)
        base = rng.uniform(0.1, 0.9, 400)
        assert choose([candidate(6, base), candidate(8, base + 0.01)]).n_neighbors == 8
        assert choose([candidate(6, base), candidate(8, base + rng.normal(0.01, 0.2, 400))]).n_neighbors == 6

    def test_failed_candidates_are_not_chosen(self):
        assert choose([candidate(6, [0.5, 0.4], "too few"), candidate(8, [0.1, 0.2])]).n_neighbors == 8
        assert choose([candidate(6, [0.5, 0.4], "too few")]) is None


def test_trustworthiness_and_continuity_equal_scikit_learns():
    from sklearn.manifold import trustworthiness  # noqa: PLC0415

    X = np.random.default_rng(7).normal(size=(200, 4))
    there, back = faithfulness(X, X[:, :2])
    assert there.mean() == pytest.approx(trustworthiness(X, X[:, :2], n_neighbors=12), abs=1e-12)
    assert back.mean() == pytest.approx(trustworthiness(X[:, :2], X, n_neighbors=12), abs=1e-12)


@pytest.mark.slow
def test_swiss_roll_gets_two_components_and_a_good_n_neighbors(tmp_path):
    found = suggestions.suggest(config_of(), 300)
    assert found["suggested"]["eigensolver.n_components"] == 2
    assert found["suggested"]["neighbors.n_neighbors"] < 30  # there the sample's neighbours cross from sheet to sheet
    lines = {(one["n_neighbors"], one["reg"]): one for one in found["candidates"]}
    assert [(k, 1e-3) in lines for k in (4, 8, 12, 30)] == [True] * 4
    assert sum(one["chosen"] for one in found["candidates"]) == 1
    assert lines[30, 1e-3]["trustworthiness"]["high"] < lines[8, 1e-3]["trustworthiness"]["low"]
    for one in lines.values():
        for key in ("dimension", "error", "trustworthiness", "continuity"):
            assert one[key]["low"] <= one[key]["value"] <= one[key]["high"]
        assert one["dimension"]["value"] == pytest.approx(2, abs=0.2)
    assert found["stretch"] == pytest.approx((20_000 / 300) ** 0.5, rel=0.1)
    assert json.loads(json.dumps(found)) == found


def test_reconstruction_error_uses_neighbours_among_all_rows():
    """The error decreases with the spacing of all rows; neighbours in the sample would give a constant error."""
    few, many = (suggestions.suggest(config_of("s_curve", n, method="pca"), 300) for n in (2000, 60_000))
    assert few["candidates"] == many["candidates"] == []
    assert set(few["suggested"]) == {"eigensolver.n_components"}
    errors = []
    for n in (2000, 60_000):
        config = config_of("s_curve", n)
        found = suggestions.sample_neighbors(config, suggestions.open_input(config), 300, 12, 0)
        errors.append(suggestions.reconstruction_errors(found, 12, 1e-3, "trace").mean())
    assert errors[0] > 2 * errors[1]


@pytest.fixture(scope="module")
def plain(tmp_path_factory, make_config, few_candidates):
    return suggestions.suggest(make_config(tmp_path_factory.mktemp("plain"), SLANTED), 200)


@pytest.mark.parametrize("rule", [
    pytest.param({"radius": 2.0, "k_max": 40}, marks=pytest.mark.slow),
    pytest.param({"eta": 0.1}, marks=pytest.mark.slow),
    pytest.param({"k_per_point": "k.npy"}, marks=pytest.mark.slow),
    pytest.param({"precomputed": {"kind": "npy", "path": "lists.npy"}}, marks=pytest.mark.slow),
])  # fmt: skip
def test_rules_about_the_whole_input_are_not_used_for_trials(tmp_path, make_config, plain, rule):
    """Files for all rows and a radius do not fit the sample: n_neighbors is tried, but not suggested."""
    ruled = suggestions.suggest(make_config(tmp_path, SLANTED, neighbors=rule), 200)
    assert ruled["candidates"] == plain["candidates"]
    assert set(ruled["suggested"]) == {"eigensolver.n_components", "weights.reg"}
    assert any(f"neighbors.{next(iter(rule))} decides" in reason for reason in ruled["reasons"])


@pytest.mark.slow
def test_cosine_gives_the_candidates_of_unit_rows(tmp_path, make_config):
    rng = np.random.default_rng(14)
    points = sample("punctured_sphere", 0, 900, 3, 0.0, 0.0).points
    unit = points / np.linalg.norm(points, axis=1, keepdims=True)
    stretched = unit * rng.uniform(0.1, 10, (900, 1))
    found, expected = (suggestions.suggest(make_config(tmp_path, rows, neighbors=neighbors), 200)
                       for rows, neighbors in ((stretched, {"metric": "cosine"}), (unit, {})))  # fmt: skip
    assert found["dimension"]["maximum_likelihood"]["value"] == pytest.approx(
        expected["dimension"]["maximum_likelihood"]["value"], abs=0.15
    )
    assert found["suggested"]["eigensolver.n_components"] == 2
    for one, other in zip(found["candidates"], expected["candidates"], strict=True):
        assert one["trustworthiness"]["value"] == pytest.approx(other["trustworthiness"]["value"], abs=0.05)


@pytest.mark.slow
def test_separate_components_lower_the_scores(tmp_path, make_config):
    rng = np.random.default_rng(11)
    pieces = [rng.random((200, 2)) @ np.eye(2, 3) + 50 * shift for shift in range(2)]
    found = suggestions.suggest(make_config(tmp_path, np.concatenate(pieces)), 400)
    for one in found["candidates"]:
        assert one["n_components_weak"] >= 2
        assert one["in_largest"] == pytest.approx(0.5, abs=0.05) or one["n_neighbors"] == 4
    assert found["stretch"] == 1.0
    assert not any("times as far" in reason for reason in found["reasons"])


def invoke(*arguments):
    result = CliRunner().invoke(app, ["suggest", *map(str, arguments)])
    return result.exit_code, result.stdout, result.stderr


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "job.yaml"
    path.write_text(
        f"input: {{kind: synthetic, name: s_curve, n_points: 2000}}\noutput: {{store: {tmp_path}/run.zarr}}\n"
    )
    return path


class TestCommand:
    def test_command_prints_a_table_and_writes_a_config(self, tmp_path, path):
        out = tmp_path / "suggested.yaml"
        code, said, _ = invoke(path, "--sample", 200, "--write", out, "--set", "weights.reg=1e-2")
        assert code == 0
        rows = [line for line in said.splitlines() if line.startswith("*")]
        assert len(rows) == 1
        written = yaml.safe_load(out.read_text())
        assert set(written) == {"input", "output", "weights", "neighbors", "eigensolver"}
        loaded = load_config(out)
        assert int(rows[0].split()[1]) == loaded.neighbors.n_neighbors
        assert loaded.eigensolver.n_components == 2
        assert not (tmp_path / "run.zarr").exists()

    def test_existing_config_file_is_not_overwritten(self, path):
        before = path.read_text()
        code, said, _ = invoke(path, "--write", path, "--json")
        assert (code, json.loads(said)["error"]) == (2, "ConfigError")
        assert path.read_text() == before

    @pytest.mark.parametrize(
        ("changes", "said"),
        [(["--set", "neighbors.n_neighbors=2500"], "must be below 2000"), (["--set", "input.name=rolls"], "input"),
         (["--set", "input.n_points=40"], "40 distinct valid rows"), (["--sample", "3"], "sample")],
    )  # fmt: skip
    def test_refused(self, path, changes, said):
        code, out, err = invoke(path, *changes)
        assert code == 2
        assert said in out + err
        assert "Traceback" not in out + err

    @pytest.mark.slow
    def test_candidates_below_the_needed_neighbours_show_the_reason(self, path):
        code, out, _ = invoke(path, "--sample", 200, "--json", "--set", "method=hessian")
        assert code == 0
        lines = {one["n_neighbors"]: one for one in json.loads(out)["candidates"]}
        assert "needs at least 6 neighbours" in lines[4]["failed"]
        assert "trustworthiness" in lines[8]
        assert "weights.reg" not in json.loads(out)["suggested"]


@pytest.mark.parametrize(
    ("number", "code"), [pytest.param(signal.SIGTERM, 143, marks=pytest.mark.slow), (signal.SIGINT, 130)]
)
@pytest.mark.slow
def test_signal_deletes_the_temporary_folder(path, tmp_path, number, code):
    """The signal arrives between two of the trial runs."""
    program = (
        "import os\nfrom pipeline.cli import commands as cli; from pipeline.jobs import suggest_trial\n"
        f"suggest_trial.faithfulness = lambda *given: os.kill(os.getpid(), {int(number)})\ncli.main()"
    )
    folder = tmp_path / "temporary"
    folder.mkdir()
    done = subprocess.run(
        [sys.executable, "-c", program, "suggest", str(path)], env={**os.environ, "TMPDIR": str(folder)},
        capture_output=True, text=True, timeout=200, check=False,
    )  # fmt: skip
    assert done.returncode == code, done.stderr
    assert not list(folder.glob("lle-suggest-*"))
    assert "Traceback" not in done.stderr
    assert "resume" not in done.stderr
