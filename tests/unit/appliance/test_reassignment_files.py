"""Kafka's JSON files for reassignments: how they are read and written, and every fault in them."""

from pathlib import Path

import pytest

from appliance.kafka.reassignment_files import (
    parse_brokers,
    parse_folders,
    parse_plan,
    parse_topics,
    plan_text,
    read,
    write,
)
from appliance.output import CommandError, Exit
from protocol.types import TopicPartition

ONE = '{"topic":"t","partition":0,"replicas":[1,2]}'


def plan(*partitions: str) -> str:
    return f'{{"version":1,"partitions":[{",".join(partitions)}]}}'


def test_a_plan_is_written_as_kafka_writes_it_and_read_again() -> None:
    targets = {TopicPartition("t", 10): (1,), TopicPartition("t", 2): (3, 1)}
    text = plan_text(targets)
    assert text == (
        '{"version":1,"partitions":['
        '{"topic":"t","partition":2,"replicas":[3,1],"log_dirs":["any","any"]},'
        '{"topic":"t","partition":10,"replicas":[1],"log_dirs":["any"]}]}'
    )
    assert parse_plan(text, "plan.json") == targets


def test_folders_of_replicas_are_written_and_read() -> None:
    tp = TopicPartition("t", 0)
    text = plan_text({tp: (1, 2)}, {(tp, 2): "/data"})
    assert text.endswith('"log_dirs":["any","/data"]}]}')
    assert parse_plan(text, "f") == {tp: (1, 2)}
    assert parse_folders(text) == {(tp, 2): "/data"}
    assert parse_folders(plan(ONE)) == {}


def test_what_kafka_leaves_out_is_optional() -> None:
    assert parse_plan(f'{{"partitions":[{ONE}]}}', "f") == {TopicPartition("t", 0): (1, 2)}
    assert parse_topics('{"topics":[{"topic":"b"},{"topic":"a"}]}', "f") == ["b", "a"]


def test_trap_17_four_thousand_partitions_in_one_file() -> None:
    targets = {TopicPartition("t", number): (1, 2, 3) for number in range(4_000)}
    assert parse_plan(plan_text(targets), "f") == targets


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (plan(), "plan.json: Partition reassignment list cannot be empty"),
        ("{}", "plan.json: Partition reassignment list cannot be empty"),
        (plan(ONE)[:-9], "plan.json is not valid JSON: Expecting"),
        ("", "plan.json is not valid JSON: Expecting value: line 1 column 1"),
        ("[1]", 'plan.json: expected {"version":1,'),
        (
            f'{{"version":2,"partitions":[{ONE}]}}',
            "plan.json: Not supported version field value 2; expected 1",
        ),
        ('{"partitions":{}}', "plan.json: partitions: expected a list"),
        ('{"partitions":[3]}', "plan.json: partitions: expected a list"),
        (plan('{"partition":0}'), "partitions[0]: expected a topic and a partition"),
        (plan(ONE, '{"topic":"t"}'), "partitions[1]: expected a topic and a partition"),
        (plan('{"topic":"t","partition":-1}'), "partitions[0]: expected a topic and a partition"),
        (plan('{"topic":"t","partition":0}'), "t-0: expected the ids of brokers under replicas"),
        (
            plan('{"topic":"t","partition":0,"replicas":["1"]}'),
            "t-0: expected the ids of brokers under replicas",
        ),
        (
            plan('{"topic":"t","partition":0,"replicas":[1,-2]}'),
            "t-0: expected the ids of brokers under replicas",
        ),
        (
            plan('{"topic":"t","partition":0,"replicas":[]}'),
            "t-0: Partition replica list cannot be empty",
        ),
        (
            plan('{"topic":"t","partition":0,"replicas":[1,2,1]}'),
            "duplicate entries: t-0 contains multiple entries for 1",
        ),
        (plan(ONE, ONE), "contains duplicate topic partitions: t-0"),
        (
            plan('{"topic":"t","partition":0,"replicas":[1,2],"log_dirs":["any"]}'),
            "Size of replicas list [1, 2] is different from size of log dirs list ['any']",
        ),
        (
            plan('{"topic":"t","partition":0,"replicas":[1],"log_dirs":["data"]}'),
            "t-0: log_dirs has 'data'; expected any, or an absolute path",
        ),
    ],
)
def test_a_plan_with_a_fault(text: str, said: str) -> None:
    with pytest.raises(CommandError) as raised:
        parse_plan(text, "plan.json")
    assert said in str(raised.value)
    assert raised.value.code is Exit.USAGE


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"topics":[]}', "topics.json: the list of topics is empty"),
        ('{"topics":[{"topic":1}]}', "topics.json: topics[0]: expected the name of a topic"),
        (
            '{"topics":[{"topic":"b"},{"topic":"a"},{"topic":"b"}]}',
            "List of topics to reassign contains duplicate entries: b",
        ),
        ('{"version":3,"topics":[]}', "Not supported version field value 3"),
        ('{"topics":[', "topics.json is not valid JSON"),
    ],
)
def test_topics_to_move_with_a_fault(text: str, said: str) -> None:
    with pytest.raises(CommandError) as raised:
        parse_topics(text, "topics.json")
    assert said in str(raised.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("1,two", "--brokers: found '1,two', expected ids such as 1,2,3"),
        ("", "--brokers: found '', expected ids"),
        ("1,-2", "--brokers: found '1,-2', expected ids"),
        ("3,1,3", "Broker list contains duplicate entries: 3"),
    ],
)
def test_a_list_of_brokers_with_a_fault(text: str, said: str) -> None:
    with pytest.raises(CommandError) as raised:
        parse_brokers(text, "--brokers")
    assert said in str(raised.value)


def test_files_that_cannot_be_used(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="No such file"):
        read(str(tmp_path / "none.json"))
    binary = tmp_path / "binary.json"
    binary.write_bytes(b"\xff\xfe")
    with pytest.raises(CommandError, match="not a text in UTF-8"):
        read(str(binary))
    path = tmp_path / "plan.json"
    write(path, {TopicPartition("t", 0): (1,)})
    assert parse_plan(read(str(path)), str(path)) == {TopicPartition("t", 0): (1,)}
    with pytest.raises(CommandError, match="exists: name another file"):
        write(path, {TopicPartition("t", 0): (2,)})
