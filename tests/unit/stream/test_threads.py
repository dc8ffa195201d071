"""Threads of the driver: the reason of an end is reported, and the work starts again."""

import threading

import pytest

from protocol.status import PartState
from stream import state as state_module
from stream.state import ENDED_TOLD_MS, StreamState
from stream.threads import ThreadKeeper
from tests.harness.wait import wait_until


def a_state() -> StreamState:
    state = StreamState("stream", ["m"], 100)
    state.running()
    return state


def test_a_thread_that_ends_of_a_fault_is_said_and_begun_again() -> None:
    state, stop = a_state(), threading.Event()
    goes_on = threading.Event()
    begun: list[int] = []

    def work() -> None:
        begun.append(1)
        if len(begun) < 3:
            raise KeyError("an unforeseen key")
        goes_on.set()
        stop.wait()

    thread = ThreadKeeper(state, stop, pause_s=(0.001, 0.01)).keep("recount", work)
    assert goes_on.wait(10)
    assert thread.is_alive() and thread.daemon
    found = state.snapshot()
    assert found.state is PartState.DEGRADED and found.ready
    (problem,) = found.problems
    assert problem.code == "thread-ended"
    assert "'recount'" in problem.text and "an unforeseen key" in problem.text
    stop.set()
    thread.join(10)
    assert not thread.is_alive()


def test_work_that_returns_is_over_and_no_fault() -> None:
    state = a_state()
    ThreadKeeper(state, threading.Event()).keep("recount", lambda: None).join(10)
    assert state.snapshot().problems == ()


def test_nothing_is_begun_again_after_the_stop() -> None:
    state, stop = a_state(), threading.Event()
    begun: list[int] = []

    def work() -> None:
        begun.append(1)
        raise KeyError("why")

    thread = ThreadKeeper(state, stop, pause_s=(60.0, 60.0)).keep("archive", work)
    wait_until(lambda: bool(state.snapshot().problems), 10, "the end is said")
    stop.set()
    thread.join(10)
    assert begun == [1]


def test_an_end_is_told_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    state = a_state()
    monkeypatch.setattr(state_module, "clock_ms", lambda: 0)
    state.thread_ended("committer", "why")
    monkeypatch.setattr(state_module, "clock_ms", lambda: ENDED_TOLD_MS - 1)
    assert [one.code for one in state.snapshot().problems] == ["thread-ended"]
    monkeypatch.setattr(state_module, "clock_ms", lambda: ENDED_TOLD_MS)
    assert state.snapshot().problems == ()
