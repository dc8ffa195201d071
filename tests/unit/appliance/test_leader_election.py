"""`kafka-leader-election`: which options can be combined, and which partition files are valid."""

from pathlib import Path

import pytest

from appliance.kafka_tools.leader_election import main, read_partitions
from appliance.output import CommandError
from protocol.types import TopicPartition

SERVER = ("--bootstrap-server", "127.0.0.1:1")
PREFERRED = ("--election-type", "preferred")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (PREFERRED, "bootstrap-server"),
        ((*SERVER, "--all-topic-partitions"), "Missing required option(s): election-type"),
        ((*SERVER, *PREFERRED), "One and only one of the following options is required"),
        (
            (*SERVER, *PREFERRED, "--all-topic-partitions", "--topic", "t", "--partition", "0"),
            "One and only one of the following options is required",
        ),
        ((*SERVER, *PREFERRED, "--topic", "t"), "Missing required option(s): partition"),
        (
            (*SERVER, *PREFERRED, "--all-topic-partitions", "--partition", "0"),
            "Option partition is only allowed if topic is used",
        ),
        ((*SERVER, "--election-type", "clean", "--all-topic-partitions"), "CLEAN"),
    ],
)
def test_options_that_do_not_go_together(
    options: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(options) == 2
    assert said in capsys.readouterr().err


def test_partitions_of_a_file(tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    plan.write_text(
        '{"partitions": [{"topic": "t", "partition": 1}, {"topic": "u", "partition": 0}]}'
    )
    assert read_partitions(str(plan)) == {TopicPartition("t", 1), TopicPartition("u", 0)}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "expected"),
        ("{}", "expected"),
        ('{"partitions": [{"topic": "t"}]}', "expected"),
        ('{"partitions": 3}', "expected"),
        (
            '{"partitions": [{"topic": "t", "partition": 1}, {"topic": "t", "partition": 1}]}',
            "contains duplicate partitions: t-1",
        ),
    ],
)
def test_a_file_that_names_no_partitions(tmp_path: Path, text: str, said: str) -> None:
    plan = tmp_path / "plan.json"
    plan.write_text(text)
    with pytest.raises(CommandError, match=said):
        read_partitions(str(plan))


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="No such file"):
        read_partitions(str(tmp_path / "none.json"))
