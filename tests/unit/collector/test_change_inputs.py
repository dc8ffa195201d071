"""Inputs change while a collector runs: no line is lost, sent twice or read by the wrong rules."""

import gzip
from pathlib import Path

import pytest

from collector.config.input_section import InputSection
from collector.identity.discovery import is_matched, plan
from collector.identity.sightings import State
from tests.unit.collector.world import World


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def section(world: World, *globs: str, topic: str = "t", **keys: object) -> dict[str, object]:
    return {"paths": [f"{world.folder}/{glob}" for glob in globs], "topic": topic, **keys}


def test_files_of_an_added_input_are_read_from_their_start(world: World) -> None:
    world.write(5, "a")
    world.write(5, "c")
    world.look()
    world.change(section(world, "a*"), section(world, "c*", topic="u"))
    world.write(3, "a")
    world.look()
    assert [topic for topic, _ in world.sent] == ["t"] * 5 + ["u"] * 5 + ["t"] * 3 or (
        sorted(topic for topic, _ in world.sent) == ["t"] * 8 + ["u"] * 5
    )
    assert len({line for _, line in world.sent}) == 13


def test_of_an_added_input_that_starts_at_the_end_only_what_comes_then(world: World) -> None:
    world.write(5, "a")
    world.write(5, "c")
    world.look()
    world.change(section(world, "a*"), section(world, "c*", topic="u", start="end"))
    world.write(1, "a")
    world.look()
    assert [topic for topic, _ in world.sent] == ["t"] * 6
    world.write(2, "c")
    world.write(3, "c2")
    world.look()
    assert [topic for topic, _ in world.sent] == ["t"] * 6 + ["u"] * 5


def test_a_file_goes_on_where_it_stood_under_another_topic(world: World) -> None:
    world.write(5, "a")
    world.look()
    world.write(5, "a")
    world.scan()
    world.feeder.step(world.now_ms)  # the lines are in the outbox but not committed
    world.change(section(world, "a*", topic="u"))
    world.write(5, "a")
    for _ in range(3):
        world.scan()
        world.read()
        world.now_ms += 100
    assert [topic for topic, _ in world.sent] == ["t"] * 10 + ["u"] * 5
    assert [int(line) for _, line in world.sent] == list(range(1, 16))


def test_a_file_at_rest_belongs_to_its_new_input_before_a_line_is_added(world: World) -> None:
    world.write(5, "a")
    world.look()
    world.change(section(world, "a*", topic="u"))
    world.scan()
    (known,) = world.registry.generations.values()
    world.write(1, "a")
    world.feeder.wake([known])  # as for a file event, without a scan
    world.read()
    assert [topic for topic, _ in world.sent] == ["t"] * 5 + ["u"]


def test_a_file_goes_on_by_other_rules(world: World) -> None:
    world.append("a", b"one\r\ntwo\r\nthr")
    world.look()
    world.change(section(world, "a*", "b*", line_end="keep"))
    world.append("a", b"ee\r\nfour\r\n")
    world.look()
    assert world.lines == [b"one", b"two", b"three\r", b"four\r"]


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "archive"])
@pytest.mark.parametrize("is_down", [False, True], ids=["running", "restarted"])
def test_a_file_whose_input_says_utf_16_too_late_is_text_from_there_on(
    world: World, is_down: bool, packed: bool
) -> None:
    """As plain bytes, the position is after the first byte of the line end. A line end has two
    bytes in UTF-16, so reading must skip the second one."""
    first, second = "eins\r\nzwei\r\n".encode("utf-16"), "dröi\r\nvier\r\n".encode("utf-16-le")
    world.append("a", gzip.compress(first) if packed else first)
    world.look()
    world.change(section(world, "a*", encoding="utf-16"))
    if is_down:
        world.down()
        world.up()
    world.append("a", gzip.compress(second) if packed else second)
    for _ in range(9):  # reading must not loop forever
        world.scan()
        world.feeder.step(world.now_ms)
    world.commit()
    assert world.lines[2:] == ["dröi".encode(), b"vier"]
    assert not world.feeder.is_busy
    (known,) = world.registry.generations.values()
    assert known.safe_position == len(first) + len(second)


def test_lines_that_wait_for_an_event_go_by_the_new_rules_each_once(tmp_path: Path) -> None:
    world = World(tmp_path, multiline={"continue": "^ ", "max_age": "1s"})
    world.append("a", b"one\n more\n")
    world.scan()
    world.read()
    assert world.sent == []
    world.change(section(world, "a*"))
    world.append("a", b"two\n")
    world.look()
    assert world.lines == [b"one", b" more", b"two"]


def test_what_an_input_that_goes_had_read_is_committed_and_it_comes_back_there(
    world: World,
) -> None:
    world.write(5, "a")
    world.look()
    world.write(5, "a")
    world.scan()
    world.feeder.step(world.now_ms)
    world.change(section(world, "b*"))
    world.write(5, "a")
    world.write(1, "b")
    world.look()
    world.quiet()
    assert world.numbers == [*range(1, 11), 16]
    assert world.states()["a"] is State.MOVED_OUT
    assert world.count("lost_possible") == 0
    world.down()
    world.up()
    world.look()
    world.change(section(world, "a*", "b*"))
    world.look()
    assert world.numbers == [*range(1, 11), 16, *range(11, 16)]


def test_an_unchanged_input_is_not_judged_again(world: World) -> None:
    world.write(5, "a")
    world.look()
    (known,) = world.registry.generations.values()
    before = known.section
    world.change(section(world, "a*", "b*", "cur"), section(world, "c*"))
    assert known.section is world.registry.inputs[0] is before


@pytest.mark.parametrize(
    ("glob", "path", "expected"),
    [
        ("/w/**", "/w/a/b.log", True),
        ("/w/**", "/w/.a/b.log", False),
        ("/w/*.log", "/w/a.log", True),
        ("/w/*.log", "/w/b/a.log", False),
        ("/w/*.log", "/w2/a.log", False),
        ("/w/a.log", "/w/a.log", True),
        ("/w/a.log", "/w/a.log.1", False),
        ("/**", "/a", True),
        ("w/*", "/h/w/x", True),
    ],
)
def test_a_name_is_matched_as_a_walk_would_find_it(glob: str, path: str, expected: bool) -> None:
    inputs = [InputSection.model_validate({"paths": [glob], "topic": "t"})]
    assert is_matched(plan(inputs, "/h"), path) is expected
