"""The JVM of a session: one for the life of the stream, or a brief one for a single check."""

import io
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import pytest

from stream import __main__ as entry
from stream.config.settings import StreamSettings
from stream.spark import session

QUICK_ALONE = "-XX:TieredStopAtLevel=1"


class Asked(Exception):
    """Raised to end the test as soon as a session is requested."""


SETTINGS = StreamSettings.model_validate(
    {
        "section": {"from": {"a": {"topic": "logs.a", "format": "raw"}}},
        "sinks": {"mysql": None, "redis": None},
        "bootstrap_servers": "",
        "data_dir": "data",
    }
)


def options(**how: Any) -> set[str]:
    return set(session.spark_options(SETTINGS, **how)["spark.driver.extraJavaOptions"].split())


def test_only_a_brief_session_does_without_the_slow_compiler() -> None:
    assert QUICK_ALONE not in options()
    assert options(is_brief=True) - options() == {QUICK_ALONE}


def dry_run(settings: StreamSettings, _: Path) -> int:
    return entry.dry_run(settings)


@pytest.mark.parametrize("question", [lambda settings, _: entry.check(settings), dry_run])
def test_a_question_is_answered_by_a_brief_session(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    question: Callable[[StreamSettings, Path], int],
) -> None:
    asked: list[dict[str, Any]] = []

    def ask(_: StreamSettings, **how: Any) -> NoReturn:
        asked.append(how)
        raise Asked

    monkeypatch.setattr(session, "start_session", ask)
    monkeypatch.setattr(sys, "stdin", io.StringIO("[]"))
    file = tmp_path / "a.log"
    file.write_text("x\n")
    with pytest.raises(Asked):
        question(SETTINGS, file)
    assert asked == [{"is_brief": True}]
