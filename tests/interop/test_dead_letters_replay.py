"""Dead letters are replayed with a real broker. Each is sent once, even if the command is
interrupted."""

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from appliance.kafka.consume import BeginAt, Beginning
from appliance.kafka.replay import DeadLetterReplay, Line, look
from appliance.kafka.session import open_cluster, run
from appliance.output import CommandError
from tests.harness import ROOT
from tests.harness.broker import BrokerProcess
from tests.harness.collector import CollectorProcess, TopicReader
from tests.harness.wait import wait_until

pytestmark = pytest.mark.live


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path / "broker") as running:
        yield running


Collect = Callable[..., None]


@pytest.fixture
def collect(broker: BrokerProcess, tmp_path: Path) -> Collect:
    """Return a function that lets a collector read these bytes. Invalid text becomes dead
    letters."""

    def once(data: bytes, topic: str, **keys: object) -> None:
        section = {
            "inputs": [
                {"paths": ["watched/**"], "topic": topic, "encoding": "shift_jis",
                 "on_invalid": "dead_letter", **keys},
            ]
        }  # fmt: skip
        collector = CollectorProcess(tmp_path / topic, broker.mill_bootstrap, section)
        collector.topics = [{"name": topic, "settings": {"max.message.bytes": "20000"}}]
        (collector.home / "watched/text/a.log").write_bytes(data)
        code, _ = collector.run("--once")
        assert code == 0, collector.log_text()

    return once


def command(broker: BrokerProcess, *arguments: str) -> list[str]:
    return [
        sys.executable, "-m", "appliance", "collector", "dead-letters", "--json",
        "-b", broker.bootstrap, *arguments,
    ]  # fmt: skip


def ask(
    broker: BrokerProcess, *arguments: str, stdin: str = "", expected: int = 0
) -> tuple[Any, str]:
    """Run the command. Return the data that it prints, and its messages."""
    done = subprocess.run(
        command(broker, *arguments),
        cwd=ROOT, input=stdin, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == expected, done.stderr
    return json.loads(done.stdout)["data"], done.stderr


def test_a_line_put_back_has_the_headers_of_its_input(
    broker: BrokerProcess, collect: Collect
) -> None:
    collect(b"\xff one\n", "t.headers", headers={"env": "test", "topic": "ours"})
    ask(broker, "--replay", "--execute")
    reader = TopicReader(broker.bootstrap, "t.headers")
    try:
        assert reader.values(1) == [b"\xff one"]
        assert reader.headers == {b"\xff one": [("env", b"test"), ("topic", b"ours")]}
    finally:
        reader.close()


def values(broker: BrokerProcess, topic: str, count: int) -> list[tuple[bytes | None, bytes]]:
    """Return key and value of all records of a topic, after waiting for this number of records."""
    reader = TopicReader(broker.bootstrap, topic)
    try:
        reader.values(count)
        found = reader.poll()
        return sorted(((key, value) for _, key, value in found), key=lambda one: one[1])
    finally:
        reader.close()


def test_letters_are_shown_first_put_back_once_and_then_known(
    broker: BrokerProcess, collect: Collect
) -> None:
    collect(b"good\n\xff one\n\xfe two\n", "t")
    found, said = ask(broker, "--replay", "--decode", "latin-1")
    assert [(row["fate"], row["line"]) for row in found["letters"]] == [
        ("put back", "ÿ one"), ("put back", "þ two"),
    ]  # fmt: skip
    assert "2 dead letters would be put back into the topic, 0 were put back before" in said
    assert values(broker, "t", 1) == [(b"text/a.log", b"good")]
    _, said = ask(broker, "--replay", "--decode", "latin-1", "--execute")
    assert "2 dead letters put back into the topic, 0 were put back before, 0 cannot" in said
    found, said = ask(broker, "--replay", "--decode", "latin-1", "--execute")
    assert {row["fate"] for row in found["letters"]} == {"replayed before"}
    assert "0 dead letters put back into the topic, 2 were put back before" in said
    assert values(broker, "t", 3) == [
        (b"text/a.log", b"good"),
        (b"text/a.log", "þ two".encode()),
        (b"text/a.log", "ÿ one".encode()),
    ]
    letters, _ = ask(broker)
    assert len(letters) == 2
    assert all(row["replayed"] for row in letters)


def test_letters_edited_by_hand_go_alone_under_the_key_their_line_would_have(
    broker: BrokerProcess, collect: Collect
) -> None:
    collect(b"\xff one\n\xfe two\n\xfd three\n", "t", key="none")
    letters, _ = ask(broker)
    edited = [{**letters[1], "line": "second"}, {"partition": 0, "record_offset": 999}]
    found, said = ask(
        broker, "--replay", "--stdin", "--execute", stdin=json.dumps({"data": edited}), expected=3
    )
    assert [(row["fate"], row["line"]) for row in found["letters"]] == [
        ("replayed", "second"),
        ("no such dead letter, or the options exclude it", None),
    ]
    assert "1 dead letter put back into the topic, 0 were put back before, 1 cannot" in said
    assert values(broker, "t", 1) == [(None, b"second")]


def test_what_the_topic_does_not_take_is_left_out_and_the_others_go(
    broker: BrokerProcess, collect: Collect
) -> None:
    collect(b"\xff one\n\xfe two\n\xfd three\n", "t")
    letters, _ = ask(broker)
    letters[1]["line"] = "x" * 30_000
    found, _ = ask(
        broker, "--replay", "--stdin", "--execute", stdin=json.dumps(letters), expected=3
    )
    fates = [row["fate"] for row in found["letters"]]
    assert fates[0] == fates[2] == "replayed"
    assert "MESSAGE_TOO_LARGE" in fates[1] or "too large" in fates[1].lower()
    assert [value for _, value in values(broker, "t", 2)] == [b"\xfd three", b"\xff one"]


def test_killed_in_the_middle_the_next_run_puts_back_the_rest(
    broker: BrokerProcess, collect: Collect
) -> None:
    count = 10_000
    lines = [b"\xff %d" % number for number in range(count)]
    collect(b"\n".join(lines) + b"\n", "t")
    reader = TopicReader(broker.bootstrap, "t")
    process = subprocess.Popen(
        command(broker, "--replay", "--execute"), cwd=ROOT, stdout=subprocess.DEVNULL
    )
    wait_until(lambda: len(reader.poll()) > 0, 30, "the first lines")
    process.send_signal(signal.SIGKILL)
    process.wait()
    _, said = ask(broker, "--replay", "--execute")
    assert f"{count} dead letters put back" not in said
    assert sorted(reader.values(count)) == sorted(lines)
    _, said = ask(broker, "--replay", "--execute")
    assert f"0 dead letters put back into the topic, {count} were put back before" in said
    assert len(reader.poll()) == count
    reader.close()


def test_of_two_at_the_same_time_the_first_is_fenced(
    broker: BrokerProcess, collect: Collect
) -> None:
    collect(b"\xff one\n", "t")

    async def both() -> None:
        async with open_cluster(broker.bootstrap) as cluster, DeadLetterReplay(cluster) as first:
            shelf = await look(cluster, Beginning(BeginAt.START), lambda letter: True)
            (letter,) = shelf.letters.values()
            line = Line(letter, "t", letter.value)
            async with DeadLetterReplay(cluster) as second:
                assert await second.put_back([line]) == {}
            with pytest.raises(CommandError, match="another replay"):
                await first.put_back([line])

    run(both())
    assert values(broker, "t", 1) == [(b"text/a.log", b"\xff one")]
    _, said = ask(broker, "--replay", "--execute")
    assert "0 dead letters put back into the topic, 1 were put back before" in said


def test_a_replay_waits_for_what_a_collector_has_open(
    broker: BrokerProcess, collect: Collect
) -> None:
    """A collector's open transaction hides the replay's own notes from a read_committed reader. The
    replay must read them all the same, or it would send the letter twice."""
    from protocol.client.cluster import Cluster
    from protocol.client.producer import Producer

    collect(b"\xff one\n", "t")

    async def work() -> None:
        async with open_cluster(broker.bootstrap) as cluster:
            other = Cluster(broker.bootstrap, client_id="other")
            await other.start(5_000)
            holder = Producer(other, transactional_id="holder", transaction_timeout_ms=3_000)
            await holder.start()
            await holder.init_transactions()
            holder.begin_transaction()
            future = await holder.send("millrace.dead-letters", b"open", partition=0)
            await future
            async with DeadLetterReplay(cluster) as replay:
                beginning = Beginning(BeginAt.START)
                shelf = await look(cluster, beginning, lambda letter: letter.topic == "t")
                (letter,) = shelf.letters.values()
                await replay.put_back([Line(letter, "t", letter.value)])
                blind = await look(cluster, beginning, lambda letter: letter.topic == "t")
                assert not blind.replayed_ms
                seeing = await look(
                    cluster, beginning, lambda letter: letter.topic == "t", past_open=True
                )
                assert list(seeing.replayed_ms) == [letter.place]
            await holder.close(1)
            await other.close()

    run(work())
