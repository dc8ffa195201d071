"""Topics named by a part of the path: the topic of each line, and files that get no topic."""

import gzip
from pathlib import Path
from typing import Any

import pytest

from collector.config.input_section import InputSection
from collector.identity.routing import Routes
from collector.identity.sightings import State
from tests.unit.collector.world import World

BY_FOLDER: dict[str, Any] = {"globs": ("*/*",), "topic": "t.{1}"}


def world_of(folder: Path, *folders: str, **keys: Any) -> World:
    for name in folders:
        (folder / name).mkdir()
    return World(folder, **(BY_FOLDER | keys))


def by_topic(world: World) -> dict[str, int]:
    topics = [topic for topic, _ in world.sent]
    return {topic: topics.count(topic) for topic in dict.fromkeys(topics)}


def errors(world: World) -> list[str]:
    return [known.error for known in world.registry.generations.values() if known.error]


def test_each_file_goes_to_the_topic_that_its_path_names(tmp_path: Path) -> None:
    world = world_of(tmp_path, "web", "db")
    world.write(20, "web/a")
    world.write(30, "db/a")
    world.write(3, "web/b")
    world.look()
    world.expect(53, new=3)
    assert by_topic(world) == {"t.web": 23, "t.db": 30}
    assert errors(world) == []


def test_a_file_waits_for_its_topic_to_be_made_and_no_other_waits_with_it(tmp_path: Path) -> None:
    world = world_of(tmp_path, "web", "db")
    world.made.add("t.db")
    world.write(20, "web/a")
    world.write(20, "db/a")
    world.scan()
    world.feeder.step(world.now_ms)
    world.commit()
    assert world.feeder.wanted_topics == ["t.web"]
    was_waiting = world.feeder.is_waiting
    assert by_topic(world) == {"t.db": 20}
    world.make_topics()
    world.read()
    assert (was_waiting, world.feeder.is_waiting) == (True, False)
    assert by_topic(world) == {"t.db": 20, "t.web": 20}


def test_a_rotation_leaves_a_file_in_the_topic_of_its_first_name(tmp_path: Path) -> None:
    world = World(tmp_path, globs=("a-*.log*",), topic="t.{1}")
    world.write(20, "a-x.log")
    world.look()
    world.write(5, "a-x.log")
    world.move("a-x.log", "a-y.log.1")
    world.look()
    world.down()
    world.up()
    world.write(5, "a-y.log.1")
    world.look()
    world.expect(30, new=0, lost_possible=0)
    assert by_topic(world) == {"t.x": 30}


def test_the_limit_keeps_further_files_in_their_place_and_nothing_is_lost(tmp_path: Path) -> None:
    world = world_of(tmp_path, "w1", "w2", "w3", "w4", max_topics=2)
    for number in (1, 2, 3, 4):
        world.write(20, f"w{number}/a")
        world.look()
    assert by_topic(world) == {"t.w1": 20, "t.w2": 20}
    assert errors(world) == [
        f"its topic 't.w{number}' is not created, because the input with topic"
        " 't.{1}' already has 2 topics (max_topics): raise max_topics"
        for number in (3, 4)
    ]
    world.write(20, "w1/b")
    world.write(20, "w3/b")
    world.move("w3/a", "w3/c")
    world.look()
    assert by_topic(world) == {"t.w1": 40, "t.w2": 20}
    section = {"paths": [f"{tmp_path}/*/*"], "topic": "t.{1}", "max_topics": 3}
    world.change(section)
    world.look()
    assert by_topic(world) == {"t.w1": 40, "t.w2": 20, "t.w3": 40}
    world.change({**section, "max_topics": 4})
    world.look()
    world.expect(120, lost_possible=0)
    assert errors(world) == []


def test_files_that_wait_are_not_judged_again_at_every_look(tmp_path: Path) -> None:
    """The collector decides about waiting files again only if they or the possible topics change,
    because there can be many of them."""
    world = world_of(tmp_path, "w1", "w2", max_topics=1)
    world.write(20, "w1/a")
    world.look()
    world.write(20, "w2/a")
    world.look()

    def waits_undisturbed() -> bool:
        (seen,) = [one for one in world.walker.scan().seen if one.path.endswith("w2/a")]
        return world.registry.is_undisturbed(seen)

    assert waits_undisturbed()
    world.write(1, "w2/a")
    assert not waits_undisturbed()
    world.look()
    assert waits_undisturbed()
    world.change({"paths": [f"{tmp_path}/*/*"], "topic": "t.{1}", "max_topics": 2})
    assert not waits_undisturbed()
    world.look()
    assert by_topic(world) == {"t.w1": 20, "t.w2": 21}


def test_after_a_restart_the_topics_that_files_have_go_before_others(tmp_path: Path) -> None:
    """A topic that a half-read file uses takes precedence, whatever the order of names is.
    Otherwise the file could not be continued."""
    world = world_of(tmp_path, "w1", "w2", max_topics=1)
    world.write(20, "w2/a")
    world.look()
    world.write(20, "w1/a")
    world.look()
    world.down()
    world.up()
    world.write(20, "w2/a")
    world.look()
    assert by_topic(world) == {"t.w2": 40}


def test_a_topic_is_free_again_when_its_last_file_is_forgotten(tmp_path: Path) -> None:
    world = world_of(tmp_path, "w1", "w2", max_topics=1)
    world.write(20, "w1/a")
    world.look()
    world.write(20, "w2/a")
    world.look()
    world.path("w1/a").unlink()
    world.quiet()
    assert by_topic(world) == {"t.w1": 20}
    (ended,) = [g for g in world.registry.generations.values() if g.state is State.DONE]
    assert ended.ended_ms is not None
    world.registry.forget(ended.ended_ms + 10, 10)
    world.look()
    assert by_topic(world) == {"t.w1": 20, "t.w2": 20}


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("wéb", "expected a topic name"),
        ("a b", "expected a topic name"),
        ("x" * 248, "expected a topic name"),
    ],
)
def test_a_name_that_is_none_for_a_topic_leaves_the_file_unread(
    tmp_path: Path, name: str, words: str
) -> None:
    world = world_of(tmp_path, name, "good")
    world.write(20, f"{name}/a")
    world.write(20, "good/a")
    world.look()
    assert by_topic(world) == {"t.good": 20}
    (error,) = errors(world)
    assert words in error


@pytest.mark.parametrize("name", ["millrace.positions", "millrace.dead-letters", "__offsets"])
def test_no_path_leads_into_an_internal_topic(tmp_path: Path, name: str) -> None:
    world = world_of(tmp_path, name, topic="{1}")
    world.write(20, f"{name}/a")
    world.look()
    assert by_topic(world) == {}
    assert "expected a topic of your own" in errors(world)[0]


def test_folders_that_stand_for_more_than_one_name_are_no_topic(tmp_path: Path) -> None:
    world = World(tmp_path, globs=("**/*.log",), topic="t.{1}")
    (tmp_path / "x/y").mkdir(parents=True)
    for name in ("x/a.log", "x/y/a.log", "a.log"):
        world.write(20, name)
    world.look()
    assert by_topic(world) == {"t.x": 20}
    told = "\n".join(errors(world))
    assert "the wildcard {1} of the topic 't.{1}' matches no character" in told
    assert "found 't.x/y', expected a topic name" in told


def test_a_changed_template_sends_what_is_read_from_then_on_elsewhere(tmp_path: Path) -> None:
    world = world_of(tmp_path, "web")
    world.write(20, "web/a")
    world.look()
    world.write(20, "web/a")
    world.change({"paths": [f"{tmp_path}/*/*"], "topic": "t.new.{1}"})
    world.look()
    world.expect(40, lost_possible=0)
    assert by_topic(world) == {"t.web": 20, "t.new.web": 20}


def test_lines_on_their_way_stay_in_the_topic_of_before(tmp_path: Path) -> None:
    """The template changes while lines are in flight. Then the transaction is aborted once, and the
    collector is killed once."""
    world = world_of(tmp_path, "web")
    world.write(20, "web/a")
    world.look()
    world.write(20, "web/a")
    world.scan()
    world.feeder.step(world.now_ms)
    world.change({"paths": [f"{tmp_path}/*/*"], "topic": "t.new.{1}"})
    world.scan()
    world.abort()
    world.look()
    world.expect(40, lost_possible=0)
    assert by_topic(world) == {"t.web": 40}
    world.write(20, "web/a")
    world.scan()
    world.feeder.step(world.now_ms)
    world.send(everything=True)
    world.kill()
    world.up()
    world.look()
    world.expect(60, lost_possible=0)
    assert by_topic(world) == {"t.web": 40, "t.new.web": 20}


def test_a_template_that_is_gone_is_no_topic(tmp_path: Path) -> None:
    """The file's input was removed, and no scan has visited the file since."""
    world = world_of(tmp_path, "web")
    gone = world.registry.inputs[0]
    routes = Routes(world.inputs, str(tmp_path))
    routes.change([InputSection.model_validate({"paths": ["x"], "topic": "other"})])
    assert routes.of(gone, str(tmp_path / "web/a")) == (
        "",
        "no input of the configuration reads it",
    )


def test_an_archive_that_goes_on_writes_where_its_original_wrote(tmp_path: Path) -> None:
    world = World(tmp_path, globs=("*.log*",), topic="t.{1}")
    world.write(20, "a.log")
    world.look()
    world.down()
    world.write(10, "a.log")
    data = world.path("a.log").read_bytes()
    world.path("a.log").unlink()
    world.path("a.log.1.gz").write_bytes(gzip.compress(data))
    world.up()
    world.look()
    world.quiet()
    world.expect(30, archive_continued=1, lost_possible=0)
    assert by_topic(world) == {"t.a": 30}


def test_dead_letters_name_the_topic_that_the_path_names(tmp_path: Path) -> None:
    world = world_of(
        tmp_path, "web", max_line_bytes=1024, on_overlong="dead_letter", headers={"k": "v"}
    )
    world.append("web/a", b"y" * 5_000 + b"\nend\n")
    world.look()
    assert by_topic(world) == {"millrace.dead-letters": 1, "t.web": 1}
    assert (b"topic", b"t.web") in world.headers[0]
    assert (b"header.k", b"v") in world.headers[0]
