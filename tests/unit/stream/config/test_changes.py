"""A changed configuration file: when it is read, how it is checked, and what remains after a
refusal."""

import hashlib
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from protocol.settling import SETTLED_S, Settling, known_signature, signature_of
from stream.config.changes import (
    ConfigWatch,
    RefusedConfig,
    UnreadableConfigFile,
    ask,
    changed_section,
    later_keys,
)
from stream.config.settings import StreamReloadSettings, StreamSection, StreamUpdate
from stream.state import StreamState
from stream.threads import ThreadKeeper
from tests.harness.wait import wait_until

FIRST, SECOND = (1, 10, 100), (1, 11, 60)


def section(*names: str, **more: Any) -> StreamSection:
    metrics = [{"name": name, "from": "a", "measure": "count", "windows": ["1m"]} for name in names]
    inputs = {"a": {"topic": "logs.a", "format": "raw"}}
    return StreamSection.model_validate({"from": inputs, "metrics": metrics, **more})


def test_a_file_is_read_once_it_has_come_to_rest() -> None:
    settling = Settling(FIRST)
    assert not settling.look(FIRST, 0.0)
    assert not settling.look(SECOND, 1.0)
    assert not settling.look((1, 12, 90), 1.0 + SETTLED_S)
    assert not settling.look((1, 12, 90), 1.0 + 1.9 * SETTLED_S)
    assert settling.look((1, 12, 90), 1.0 + 2 * SETTLED_S)
    assert not settling.look((1, 12, 90), 99.0)


def test_a_file_that_is_away_for_a_moment_is_no_change() -> None:
    """Some editors delete the old file and then rename the new file to its name."""
    settling = Settling(FIRST)
    assert not settling.look(None, 1.0)
    assert not settling.look(None, 9.0)
    assert not settling.look(FIRST, 10.0)
    assert not settling.look(FIRST, 19.0)


def test_the_signature_tells_every_writing(tmp_path: Path) -> None:
    path = tmp_path / "file"
    assert signature_of(path) is None
    path.write_text("one")
    first = signature_of(path)
    (tmp_path / "other").write_text("two")
    (tmp_path / "other").replace(path)
    assert signature_of(path) != first


def printing(text: str, code: int = 0, stream: str = "stdout") -> tuple[str, ...]:
    return (sys.executable, "-c", f"import sys; sys.{stream}.write({text!r}); sys.exit({code})")


def test_what_the_command_prints_is_asked_for() -> None:
    wish = StreamUpdate(section=section("m"))
    assert ask(printing(wish.model_dump_json(by_alias=True))) == wish


@pytest.mark.parametrize(
    ("command", "why"),
    [
        (printing("mill.yaml:3:1: stream.metrics: found 7\nmore", 2, "stderr"), "mill.yaml:3:1"),
        (printing("", 1), "no reason given"),
        (printing("{"), "ValidationError"),
        (("/no/such/command",), "No such file"),
    ],
)
def test_a_file_with_faults_tells_them(command: tuple[str, ...], why: str) -> None:
    found = ask(command)
    assert isinstance(found, UnreadableConfigFile)
    assert why in found.why


def test_a_changed_file_is_asked_once(tmp_path: Path) -> None:
    file = tmp_path / "wish.json"
    file.write_text(StreamUpdate(section=section("m")).model_dump_json(by_alias=True))
    show = "import sys; sys.stdout.write(open(sys.argv[1]).read())"
    watch = ConfigWatch(
        StreamReloadSettings(file=file, command=(sys.executable, "-c", show, str(file)))
    )
    watch.start(ThreadKeeper(StreamState("stream", [], 100), threading.Event()))
    try:
        wish = StreamUpdate(section=section("m", "n"))
        file.write_text(wish.model_dump_json(by_alias=True))
        assert wait_until(watch.take, 30, "the change is heard of") == wish
        assert watch.take() is None
    finally:
        watch.close()


def test_a_file_that_changed_before_it_was_looked_at_is_asked(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("older")
    digest = hashlib.sha256(b"older").hexdigest()
    assert known_signature(file, digest) == signature_of(file)
    file.write_text("newer")
    assert known_signature(file, digest) is None
    assert known_signature(file, None) == signature_of(file)


def test_only_inputs_and_metrics_change_while_the_stream_runs() -> None:
    running = section("m", heap="1GiB")
    asked = section("m", "n", heap="2GiB", trigger="1s")
    changed = changed_section(running, asked)
    assert [metric.name for metric in changed.metrics] == ["m", "n"]
    assert (changed.heap, changed.trigger) == (running.heap, running.trigger)
    assert later_keys(running, asked) == ["stream.trigger", "stream.heap"]
    assert later_keys(running, changed) == []


def test_what_was_refused_is_known_after_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "refused.json"
    running, asked = StreamUpdate(section=section("m")), section("m", "broken")
    RefusedConfig(path).note(asked, running, "because")
    instead = RefusedConfig(path).running_instead(asked)
    assert instead is not None
    assert (instead.update, instead.why) == (running, "because")
    assert RefusedConfig(path).running_instead(section("m", "mended")) is None
    RefusedConfig(path).clear()
    assert RefusedConfig(path).running_instead(asked) is None
    RefusedConfig(path).clear()


@pytest.mark.parametrize("text", ["", "{", "[]", '{"version": 1}'])
def test_a_torn_file_is_as_none(tmp_path: Path, text: str) -> None:
    path = tmp_path / "refused.json"
    path.write_text(text)
    assert RefusedConfig(path).running_instead(section("m")) is None
