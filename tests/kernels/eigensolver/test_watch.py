"""The progress that methods report while they work."""

import numpy as np
import pytest

from lle.kernels.eigensolver import problem
from lle.kernels.eigensolver.problem import Hooks, Watch
from tests.support.eigenproblems import solve
from tests.support.sampled_factors import roll_coordinates, roll_factor


class Clock:
    def __init__(self, monkeypatch):
        self.now = 0.0
        monkeypatch.setattr(problem.time, "monotonic", lambda: self.now)


def steps_of(monkeypatch, errors, limit, seconds=2.0, solves=10):
    """The reports of steps with these largest errors against a bound of 1e-8."""
    reports, clock = [], Clock(monkeypatch)
    watched = Watch("multigrid", reports.append)
    watched.begin("solves", limit)
    for number, error in enumerate(errors, 1):
        clock.now += seconds
        watched.step(solves * number, np.array([1e-9, error]), np.array([1e-8, 1e-8]))
    return reports[1:]


def test_time_left_follows_the_rate_of_convergence(monkeypatch):
    """Each step of 2 s divides the error by ten: after six steps it is 1e-6, two steps above the bound."""
    reports = steps_of(monkeypatch, 10.0 ** -np.arange(1, 9), limit=10_000)
    assert reports[5].seconds_left == pytest.approx(4.0)
    assert [report.is_forecast for report in reports[:2]] == [True, False]
    assert reports[7].seconds_left == pytest.approx(0.0)
    assert (reports[5].vector_error, reports[5].bound, reports[5].n_solves) == (pytest.approx(1e-6), 1e-8, 60)


def test_time_left_ends_at_the_limit_of_solves(monkeypatch):
    """Ten solves take 2 s, and the limit allows 40 more."""
    reports = steps_of(monkeypatch, 10.0 ** (-np.arange(1, 9) / 100), limit=120)
    assert reports[7].seconds_left == pytest.approx(8.0)


def test_time_left_is_unknown_until_errors_decrease(monkeypatch):
    reports = steps_of(monkeypatch, [0.1, 0.2, 0.3], limit=10_000)
    assert [report.seconds_left for report in reports] == [None, None, None]


@pytest.mark.parametrize("method", ["factored", "shift_invert", "multigrid"])
def test_methods_report_their_steps_down_to_the_bound(method):
    factor, reports = roll_factor(900, seed=5), []
    hooks = Hooks(progress=reports.append)
    spectrum = solve(factor, 2, method, hooks=hooks, candidates=lambda: roll_coordinates(900, 5))
    steps = [report for report in reports if report.n_solves]
    assert {report.method for report in reports} == {method}
    assert len(steps) >= 2
    solves = [report.n_solves for report in steps]
    assert solves == sorted(set(solves))
    assert steps[-1].vector_error <= steps[-1].bound
    assert steps[0].vector_error > steps[-1].vector_error
    if method == "multigrid":
        assert solves[-1] == spectrum.stats.n_steps
    else:
        assert f"{spectrum.stats.factor_nnz:,} entries" in reports[0].phase
