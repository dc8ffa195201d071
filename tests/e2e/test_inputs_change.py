"""A user saves other inputs in the file of a running mill. The running collector applies them."""

import json
from collections.abc import Iterator

import pytest

from protocol.status import PartStatus, fetch_status
from tests.e2e.mill import TempMill, temp_mill
from tests.harness.collector import TopicReader
from tests.harness.wait import wait_until

pytestmark = pytest.mark.live

WAIT_S = 30.0


def config(*inputs: str, rest: str = "") -> str:
    listed = "".join(f"    - {one}\n" for one in inputs)
    return (
        f"collector:\n  inputs:\n{listed}{rest}stream: {{metrics: []}}\n"
        "monitor: {listen: 127.0.0.1:8090}\n"
    )


ACCESS = "{paths: ['watched/access/**'], topic: t.access}"
MORE = "{paths: ['watched/more/**'], topic: t.more}"


@pytest.fixture(scope="module")
def mill(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TempMill]:
    with temp_mill(tmp_path_factory.mktemp("inputs") / "mill") as made:
        (made.home.folder / "watched" / "more").mkdir()
        made.write_config(config(ACCESS))
        made.up()
        yield made


def collector(mill: TempMill) -> PartStatus:
    return fetch_status("127.0.0.1", mill.ports["collector"], 2.0)


def test_a_saved_input_is_read_by_the_process_that_runs(mill: TempMill) -> None:
    pid = collector(mill).pid
    mill.write_config(config(ACCESS, MORE))
    wait_until(lambda: collector(mill).details["inputs"] == 2, WAIT_S, "the input")
    (mill.home.folder / "watched/more/a.log").write_bytes(b"one\n")
    reader = TopicReader(mill.bootstrap(1), "t.more")
    assert reader.values(1) == [b"one"]
    reader.close()
    assert collector(mill).pid == pid
    assert "the file has not changed" in mill.run("config", "reload").err


def test_reload_says_what_changed_and_what_only_a_restart_applies(mill: TempMill) -> None:
    mill.write_config(config(ACCESS))
    result = mill.run("config", "reload")
    assert result.code == 0, result.err
    assert collector(mill).details["inputs"] == 1, "reload returns when it holds"
    mill.write_config(config(ACCESS, rest="  compression: none\n"))
    result = mill.run("config", "reload")
    assert (result.code, "collector.compression changed" in result.err) == (3, True), result.err
    mill.write_config(config("{paths: ['watched/access/**'], topik: t}"))
    result = mill.run("config", "reload")
    assert (result.code, "topik" in result.err) == (2, True), result.err
    assert collector(mill).details["inputs"] == 1
    mill.write_config(config(ACCESS))
    assert mill.run("config", "reload").code == 0


def test_a_saved_template_names_topics_and_files_beyond_its_limit_are_told(mill: TempMill) -> None:
    mill.write_config(
        config("{paths: ['watched/by/*/*'], topic: 't.by.{1}', max_topics: 1, headers: {k: v}}")
    )
    assert mill.run("config", "reload").code == 0
    for name in ("one", "two"):
        (mill.home.folder / "watched/by" / name).mkdir(parents=True)
        (mill.home.folder / "watched/by" / name / "a.log").write_bytes(b"%s\n" % name.encode())
        wait_until(
            lambda: f"by/{name}/a.log" in mill.run("collector", "status").out,  # noqa: B023
            WAIT_S,
            "the file",
        )
    reader = TopicReader(mill.bootstrap(1), "t.by.one")
    assert reader.values(1) == [b"one"]
    assert reader.headers == {b"one": [("k", b"v")]}
    reader.close()
    wait_until(lambda: bool(collector(mill).problems), WAIT_S, "the problem")
    for command in ("status", "check"):
        result = mill.run("collector", command)
        assert "already has 1 topics (max_topics)" in result.out + result.err, command
    mill.write_config(config(ACCESS))
    assert mill.run("config", "reload").code == 0


def test_what_is_known_of_a_file_is_shown_and_changed_by_hand(mill: TempMill) -> None:
    path = mill.home.folder / "watched/access/a.log"
    path.write_bytes(b"one\ntwo\n")
    wait_until(
        lambda: any(
            row["path"] == str(path) and row["lines"] == 2
            for row in collector(mill).details["files"]  # type: ignore[attr-defined]
        ),
        WAIT_S,
        "both lines",
    )
    shown = mill.run("collector", "status").out
    assert "KNOWN_BY" in shown
    assert f"inode {path.stat().st_ino}, head 8 B, marker 8 B, checksum" in shown
    result = mill.run("collector", "again", "a.log")
    assert (result.code, "2 lines that were counted would be" in result.err) == (0, True), (
        result.err
    )
    result = mill.run("collector", "again", "a.log", "--execute")
    assert (result.code, "stop collector" in result.err) == (3, True), result.err
    assert mill.run("stop", "collector").code == 0
    result = mill.run("collector", "again", "access/a.log", "--execute", "--json")
    assert result.code == 0, result.err
    assert json.loads(result.out)["data"]["executed"]
    assert mill.run("start", "collector").code == 0
    reader = TopicReader(mill.bootstrap(1), "t.access")
    assert reader.values(4) == [b"one", b"two", b"one", b"two"]
    reader.close()
    assert mill.run("collector", "forget", "no-such.log").code == 4
