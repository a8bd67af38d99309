"""The share of a run that is done and the seconds left: closed forms, and what holds for any forecast."""

import sys
import threading
from functools import partial

import pytest

from lle.engine.step import TaskState
from lle.engine.time_left import LARGEST, OVERDUE, PRIOR, Look, TimeLeft


class Clock:
    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


def begun(clock, expected, step="a", n_blocks=1, n_done=0):
    run = TimeLeft(clock)
    run.expect(expected)
    run.begin(step, n_blocks, n_done)
    return run


def test_a_forecast_that_holds_counts_down(clock):
    """Steps of 10 and 30 s: after t seconds t / 40 are done and 40 - t are left."""
    run = begun(clock, {"a": 10.0, "b": 30.0})
    for t in (2.0, 7.5, 10.0, 25.0, 34.0):
        if t == 10.0:
            clock.now = t
            run.end()
            run.begin("b", 1, 0)
        clock.now = t
        look = run.look()
        assert (look.fraction, look.seconds_left) == (pytest.approx(t / 40), pytest.approx(40 - t))


def test_measured_seconds_correct_the_forecast(clock):
    """The first step takes three times its 10 s. The whole forecast is 40 s, so PRIOR counts for 40 PRIOR s."""
    run = begun(clock, {"a": 10.0, "b": 30.0})
    clock.now = 30.0
    run.end()
    run.begin("b", 1, 0)
    pace = (30 + 40 * PRIOR) / (10 + 40 * PRIOR)
    assert run.look().seconds_left == pytest.approx(30 * pace)
    assert run.look().fraction == pytest.approx(30 / (30 + 30 * pace))


def test_finished_blocks_correct_the_forecast_of_their_step(clock):
    """Three of four blocks took 60 s, forecast for all is 80 s: a quarter of (80 / 4 + 60) s is left."""
    run = begun(clock, {"a": 80.0}, n_blocks=4)
    for _ in range(3):
        clock.now += 20
        run.advance()
    assert run.look().seconds_left == pytest.approx((80 / 4 + 60) / 4)
    clock.now += 4  # of the last block
    assert run.look().seconds_left == pytest.approx((80 / 4 + 60) / 4 - 4)
    clock.now += 12
    assert run.look().seconds_left == pytest.approx(OVERDUE * 76)


def test_a_step_that_is_late_delays_the_later_ones(clock):
    run = begun(clock, {"a": 10.0, "b": 30.0})
    seconds = {}
    for clock.now in (5.0, 10.0, 40.0):
        seconds[clock.now] = run.look().seconds_left
    assert seconds[5.0] == pytest.approx(5 + 30)
    pace = (40 + 40 * PRIOR) / (10 + 40 * PRIOR)
    assert seconds[40.0] == pytest.approx(OVERDUE * 40 + 30 * pace)


def test_blocks_alone_give_the_seconds_left(clock):
    run = begun(clock, {}, n_blocks=6)
    clock.now = 10.0
    assert run.look() == Look(pytest.approx(run.look().time, abs=1), "a", 0.0, None)
    for now in (20.0, 40.0, 60.0):
        clock.now = now
        run.advance()
    assert (run.look().fraction, run.look().seconds_left) == (pytest.approx(2 / 3), pytest.approx(30.0))


def test_a_resumed_run_begins_with_what_is_done(clock):
    """a (10 s) and three of the four blocks of b (20 s) are done: 25 of 40 s."""
    run = begun(clock, {"a": 10.0, "b": 20.0, "c": 10.0}, n_blocks=2, n_done=2)
    run.end()
    run.begin("b", 4, 3)
    assert (run.look().fraction, run.look().seconds_left) == (pytest.approx(25 / 40), pytest.approx(15.0))


def test_tasks_that_report_their_time_replace_the_forecast(clock):
    run = begun(clock, {"solve": 2.0, "report": 1.0}, step="solve")
    clock.now = 30.0
    pace = (30 + 3 * PRIOR) / (2 + 3 * PRIOR)
    assert run.look(TaskState("solves", "", 60.0), age=4.0).seconds_left == pytest.approx(56.0 + pace)
    forecast = TaskState("LU", "", 10.0, is_forecast=True)  # the machine is as slow as before
    assert run.look(forecast, age=4.0).seconds_left == pytest.approx(10 * pace - 4 + pace)
    assert run.look().seconds_left == pytest.approx(OVERDUE * 30 + pace)


def test_a_new_forecast_keeps_what_is_done(clock):
    run = begun(clock, {"a": 10.0, "b": 30.0})
    clock.now = 10.0
    run.end()
    run.expect({"b": 10.0})
    run.begin("b", 1, 0)
    assert run.look().fraction == pytest.approx(0.5)


def test_the_share_never_falls_and_is_below_one_before_the_end(rng):
    clock, names = Clock(), [f"s{number}" for number in range(12)]
    run = TimeLeft(clock)
    run.expect({name: float(rng.exponential()) for name in names if rng.random() < 0.8})
    fractions = []
    for name in names:
        n_blocks = int(rng.integers(1, 9))
        run.begin(name, n_blocks, int(rng.integers(n_blocks + 1)))
        for _ in range(int(rng.integers(6))):
            clock.now += float(rng.exponential(3))
            state = TaskState("", "", float(rng.exponential(9))) if rng.random() < 0.3 else None
            look = run.look(state, float(rng.exponential(5)))
            assert look.seconds_left is None or look.seconds_left >= 0
            fractions.append(look.fraction)
            run.advance()
        run.end()
        fractions.append(run.look().fraction)
    assert fractions == sorted(fractions)
    assert 0 <= fractions[0] < fractions[-1] <= LARGEST
    assert len(set(fractions)) > 5


def test_a_thread_looks_while_steps_begin_and_end(request):
    request.addfinalizer(partial(sys.setswitchinterval, sys.getswitchinterval()))
    sys.setswitchinterval(1e-6)
    run, names = TimeLeft(), [f"s{number}" for number in range(4000)]
    run.expect(dict.fromkeys(names, 1.0))
    ended, errors = threading.Event(), []

    def look():
        while not ended.is_set():
            try:
                run.look()
            except RuntimeError as error:  # the dictionary changed
                errors.append(error)

    thread = threading.Thread(target=look)
    thread.start()
    for name in names:
        run.begin(name, 1, 0)
        run.end()
    ended.set()
    thread.join()
    assert errors == []
