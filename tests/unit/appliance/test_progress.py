"""Progress lines: a terminal shows one line that is overwritten, other outputs get separate
lines."""

import io
import sys

import pytest

from appliance.cli import progress
from appliance.cli.progress import ProgressLine, waiting
from tests.harness.wait import wait_until

DEADLINE_S = 30.0


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def test_in_a_pipe_a_line_after_two_seconds_and_every_five(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock, pipe = Clock(), io.StringIO()
    monkeypatch.setattr(sys, "stderr", pipe)
    line = ProgressLine(clock_s=clock)
    asked = []
    for _ in range(160):
        line.show(lambda: asked.append(clock.now_s) or "at work")  # type: ignore[func-returns-value]
        clock.now_s += 0.1
    line.end()
    assert pipe.getvalue().splitlines() == ["at work (2 s)", "at work (7 s)", "at work (12 s)"]
    # The text is computed only when it is printed, because computing it can be expensive.
    assert len(asked) == 3


def test_what_is_quick_says_nothing() -> None:
    clock, terminal = Clock(), Terminal()
    line = ProgressLine(terminal, clock)
    clock.now_s += 1.9
    line.show("at work")
    line.end()
    assert terminal.getvalue() == ""


def test_on_a_terminal_it_is_rewritten_never_wraps_and_is_taken_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    clock, terminal = Clock(), Terminal()
    line = ProgressLine(terminal, clock)
    for seconds in (2.0, 0.1, 0.2):
        clock.now_s += seconds
        line.show("x" * 40 if seconds == 0.2 else "at work")
    line.end()
    line.end()
    shown = ["", "at work (2 s)", "x" * 19, ""]
    assert terminal.getvalue() == "\r\x1b[K".join(shown)


def test_what_says_nothing_of_itself_is_said_to_be_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(progress, "FIRST_AFTER_S", 0.0)
    pipe = io.StringIO()
    monkeypatch.setattr(sys, "stderr", pipe)
    with pytest.raises(ZeroDivisionError), waiting("Spark starts"):
        wait_until(pipe.getvalue, DEADLINE_S, "a line is there")
        1 / 0  # noqa: B018
    assert pipe.getvalue() == "Spark starts (0 s)\n"
