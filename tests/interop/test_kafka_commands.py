"""The messages of our `kafka-*` commands about rejected calls, on one broker and within seconds.

`test_commands_beside_kafka.py` compares them with those of Kafka's tools, but is too slow to run
for each change.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from appliance.kafka_tools.__main__ import main
from tests.harness.broker import BrokerProcess
from tests.harness.wait import wait_until

pytestmark = pytest.mark.live

AT_ONCE_S = 5.0
"""Less than the time for which a client retries while a topic or broker is missing."""

Ask = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    settings = {"group.initial.rebalance.delay.ms": 0, "offsets.topic.num.partitions": 1}
    with BrokerProcess(tmp_path_factory.mktemp("refused"), settings) as broker:
        created = ("topics", "--bootstrap-server", broker.bootstrap, "--create", "--topic", "logs")
        assert main([*created]) == 0
        yield broker


@pytest.fixture
def ask(broker: BrokerProcess, capfd: pytest.CaptureFixture[str]) -> Ask:
    """Return a function that calls a tool. It returns the exit code, the output and the errors."""

    def asked(tool: str, *options: str) -> tuple[int, str, str]:
        capfd.readouterr()
        code = main([tool, "--bootstrap-server", broker.bootstrap, *options])
        told = capfd.readouterr()
        return code, told.out, told.err

    return asked


@pytest.fixture(scope="module")
def live_group(broker: BrokerProcess) -> Iterator[str]:
    """Create a group with a member that has committed."""
    member = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "live"})
    member.subscribe(["logs"])

    def has_joined() -> bool:
        member.poll(0)
        return bool(member.assignment())

    wait_until(has_joined, 30, "the member has its share")
    member.commit(offsets=[TopicPartition("logs", 0, 0)], asynchronous=False)
    yield "live"
    member.close()


def test_a_group_with_members_does_not_keep_others_from_a_reset(ask: Ask, live_group: str) -> None:
    """One group of the call has members, so it cannot be reset. All other groups must be reset,
    whatever their order in the call."""
    groups = ("--group", "before", "--group", live_group, "--group", "behind")
    code, out, _ = ask(
        "consumer-groups",
        *("--reset-offsets", *groups, "--topic", "logs", "--to-earliest", "--execute"),
    )
    assert code == 3
    assert f"Error: Assignments can only be reset if the group '{live_group}' is inactive" in out
    rows = [line.split() for line in out.splitlines() if " logs " in line]
    assert rows == [["before", "logs", "0", "0"], ["behind", "logs", "0", "0"]]
    _, described, _ = ask("consumer-groups", "--describe", "--group", "behind")
    assert " logs " in described


def test_offsets_that_are_not_deleted(ask: Ask, live_group: str) -> None:
    delete = ("consumer-groups", "--delete-offsets", "--group")
    code, out, _ = ask(*delete, live_group, "--topic", "logs")
    assert code == 1
    first = "Error: Encountered some partition-level error, see the follow-up details."
    assert out.splitlines()[:2] == ["", first]
    code, out, _ = ask(*delete, "absent", "--topic", "logs")
    assert code == 4
    assert [line.split()[:2] for line in out.splitlines()[3:]] == [
        ["TOPIC", "PARTITION"],
        ["logs", "0"],
    ]
    code, out, _ = ask(*delete, live_group, "--topic", "absent")
    assert code == 4


def test_groups_of_which_some_are_not_deleted(ask: Ask, live_group: str) -> None:
    reset = ("--reset-offsets", "--group", "gone", "--topic", "logs", "--to-earliest", "--execute")
    assert ask("consumer-groups", *reset)[0] == 0
    code, out, _ = ask("consumer-groups", "--delete", "--group", "gone", "--group", live_group)
    assert code == 1
    lines = [line for line in out.splitlines() if line]
    assert lines[0] == "Error: Deletion of some consumer groups failed:"
    assert lines[1].startswith(f"* Group '{live_group}' could not be deleted due to: ")
    assert lines[2] == "These consumer groups were deleted successfully: 'gone'"


@pytest.mark.parametrize(
    "options",
    [
        ("configs", "--describe", "--broker", "9"),
        ("configs", "--alter", "--broker", "9", "--add-config", "log.cleaner.threads=2"),
        ("configs", "--alter", "--topic", "absent", "--add-config", "retention.ms=1"),
    ],
)
def test_what_is_not_there_is_told_at_once(ask: Ask, options: tuple[str, ...]) -> None:
    began = time.monotonic()
    code, out, err = ask(*options)
    assert code == 4
    assert "exist" in out + err
    assert time.monotonic() - began < AT_ONCE_S


def test_a_record_that_is_none_of_what_was_announced(ask: Ask, broker: BrokerProcess) -> None:
    assert ask("topics", "--create", "--topic", "mixed")[0] == 0
    sender = Producer({"bootstrap.servers": broker.bootstrap})
    for value in (b"short", b"12345678"):
        sender.produce("mixed", value)
    assert sender.flush(30) == 0
    long = "org.apache.kafka.common.serialization.LongDeserializer"
    read = ("console-consumer", "--topic", "mixed", "--from-beginning", "--max-messages", "2")
    code, out, err = ask(*read, "--value-deserializer", long)
    assert code == 1
    assert out == ""
    assert "mixed-0, offset 0: found 5 bytes, expected the 8 of a long" in err
    code, out, err = ask(*read, "--value-deserializer", long, "--skip-message-on-error")
    assert code == 0
    assert out == "3544952156018063160\n"
    assert "skipped" in err


def test_a_transaction_is_ended_by_the_option_that_kafka_has(ask: Ask) -> None:
    end = ("transactions", "forceTerminateTransaction")
    assert ask(*end, "--transactionalId", "stranger")[0] == 0
    _, out, _ = ask("transactions", "describe", "--transactional-id", "stranger")
    assert "stranger" in out
