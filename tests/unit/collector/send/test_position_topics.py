"""Which topic and partition have the positions of a collector."""

import pytest
from pydantic import ValidationError

from collector.config.input_section import InputSection
from collector.config.settings import CollectorSection, CollectorSettings
from collector.send.position_topics import GROUP_PARTITIONS, group_partition, positions_topic
from collector.send.topics import topic_specs


def _positions_topics(section: dict[str, object]) -> dict[str, int | None]:
    settings = CollectorSettings.model_validate(
        {"bootstrap_servers": "b:1", "home": "/h", "data_dir": "/d", "section": section}
    )
    specs = topic_specs(settings)
    return {one.name: one.partitions for one in specs if "positions" in one.name}


def test_a_collector_of_a_group_has_another_topic_with_sixteen_partitions() -> None:
    assert _positions_topics({}) == {"millrace.positions": 1}
    assert _positions_topics({"group": "web"}) == {"millrace.positions.web": GROUP_PARTITIONS}
    assert positions_topic("web") == "millrace.positions.web"


def test_the_partition_of_an_instance_never_changes() -> None:
    """Other partitions would hide the stored positions, so all files would be read again."""
    assert [group_partition(name) for name in ("web-1", "web-2", "db-1")] == [13, 14, 6]


def test_instances_are_spread_over_the_partitions() -> None:
    found = {group_partition(f"web-{number}") for number in range(200)}
    assert found == set(range(GROUP_PARTITIONS))


@pytest.mark.parametrize("name", ["", "Web", "-web", "a.b", "a" * 32, "a b"])
def test_names_that_are_no_group(name: str) -> None:
    with pytest.raises(ValidationError):
        CollectorSection(group=name)


def test_lines_cannot_go_to_the_positions_of_a_group() -> None:
    with pytest.raises(ValidationError, match="expected a topic of your own"):
        InputSection(paths=("a",), topic="millrace.positions.web")
