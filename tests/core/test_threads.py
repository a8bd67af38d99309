"""Limits of threads of the numerical libraries, also when Python threads set them at the same time."""

import threading

import numpy as np  # noqa: F401 (loads a BLAS)
from threadpoolctl import threadpool_info, threadpool_limits

from lle.core.threads import limited_threads


def blas_threads() -> set[int]:
    return {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"}


def test_inner_limit_holds_until_its_end():
    with threadpool_limits(2, user_api="blas"):
        with limited_threads(1):
            assert blas_threads() == {1}
            with limited_threads(2):
                assert blas_threads() == {2}
            assert blas_threads() == {1}
        assert blas_threads() == {2}


def test_first_number_returns_after_overlapping_limits():
    first_began, second_began, first_ended = threading.Event(), threading.Event(), threading.Event()

    def first() -> None:
        with limited_threads(1):
            first_began.set()
            second_began.wait(30)
        first_ended.set()

    before = blas_threads()
    thread = threading.Thread(target=first)
    thread.start()
    first_began.wait(30)
    with limited_threads(1):
        second_began.set()
        first_ended.wait(30)
        assert blas_threads() == {1}, "the limit of this thread still holds"
    thread.join()
    assert blas_threads() == before


def test_limit_of_another_thread_holds_after_this_thread_set_the_number():
    seen: list[set[int]] = []

    def limited() -> None:
        with limited_threads(1):
            seen.append(blas_threads())

    with threadpool_limits(2, user_api="blas"):
        thread = threading.Thread(target=limited)
        thread.start()
        thread.join()
        assert seen == [{1}]
        assert blas_threads() == {2}
