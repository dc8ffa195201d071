"""Long lines that container runtimes split are joined again without the prefixes of their parts."""

import json
import random
from pathlib import Path

import pytest

from tests.unit.collector.blocks import seed
from tests.unit.collector.world import World

CASE = [
    b"2024-09-07T15:58:36.123456789Z stdout P part one ",
    b"2024-09-07T15:58:36.123456790Z stdout F and two",
    b"2024-09-07T15:58:36.2Z stderr F err",
    b"2024-09-07T15:58:37.2Z stdout F whole",
]
JOINED = [
    b"2024-09-07T15:58:36.123456789Z stdout F part one and two",
    b"2024-09-07T15:58:36.2Z stderr F err",
    b"2024-09-07T15:58:37.2Z stdout F whole",
]


def lines(*texts: bytes) -> bytes:
    return b"".join(text + b"\n" for text in texts)


def values(world: World) -> list[bytes]:
    return [value for _, value in world.records]


def world_of(folder: Path, preset: str = "cri", **keys: object) -> World:
    multiline = {"preset": preset, "max_age": "1s"} | keys
    return World(folder, ["a*"], multiline=multiline)


def docker(text: str, stream: str = "stdout", time: int = 0) -> bytes:
    found = {"log": text, "stream": stream, "time": f"2024-09-07T15:58:36.{time}Z"}
    return json.dumps(found, ensure_ascii=False, separators=(",", ":")).encode()


def test_parts_are_joined_without_their_prefix(tmp_path: Path) -> None:
    world = world_of(tmp_path)
    world.append("a", lines(*CASE))
    world.look()
    assert values(world) == JOINED
    world.down()
    world.up()
    world.look_and_wait(2_000)
    assert values(world) == JOINED


def test_streams_that_lie_between_each_other_are_joined_each(tmp_path: Path) -> None:
    world = world_of(tmp_path)
    world.append("a", lines(b"1 stdout P a", b"2 stderr P x", b"3 stdout P b", b"4 stderr F y"))
    world.append("a", lines(b"5 other line", b"6 stdout F c", b"7 stdout F end"))
    world.look()
    assert values(world) == [
        b"2 stderr F xy",
        b"5 other line",
        b"1 stdout F abc",
        b"7 stdout F end",
    ]


@pytest.mark.parametrize("wait_ms", [0, 700])
def test_a_part_waits_for_the_next_one_and_so_do_the_lines_behind(
    tmp_path: Path, wait_ms: int
) -> None:
    world = world_of(tmp_path)
    for line in (b"1 stdout P a", b"2 stderr F x", b"3 stdout F b"):
        assert values(world) == []
        world.append("a", lines(line))
        world.scan()
        world.read()
        world.now_ms += wait_ms
    assert values(world) == [b"2 stderr F x", b"1 stdout F ab"]


def test_a_part_that_nothing_follows_is_a_record_with_its_tag(tmp_path: Path) -> None:
    world = world_of(tmp_path)
    world.append("a", lines(b"1 stdout P a", b"2 stdout P b", b"3 stderr F x"))
    world.look_and_wait(2_000)
    assert values(world) == [b"3 stderr F x", b"1 stdout P ab"]
    world.append("a", lines(b"4 stdout F c"))
    world.look_and_wait(2_000)
    assert values(world)[2:] == [b"4 stdout F c"]


@pytest.mark.parametrize("stop", ["kill", "down", "start_over"])
def test_a_death_within_a_group_loses_and_doubles_nothing(tmp_path: Path, stop: str) -> None:
    world = world_of(tmp_path)
    world.append("a", lines(b"0 stdout F before", b"1 stdout P a", b"2 stderr F x"))
    world.scan()
    world.read()
    assert values(world) == [b"0 stdout F before"]
    getattr(world, stop)()
    if stop != "start_over":
        world.up()
    world.append("a", lines(b"3 stdout F b"))
    world.look_and_wait(2_000)
    assert values(world) == [b"0 stdout F before", b"2 stderr F x", b"1 stdout F ab"]


def test_limits_end_a_group_and_are_counted(tmp_path: Path) -> None:
    world = world_of(tmp_path, max_lines=3)
    world.append("a", lines(*(b"%d stdout P %d" % (n, n) for n in range(7)), b"7 stdout F 7"))
    world.look()
    assert values(world) == [b"0 stdout P 012", b"3 stdout P 345", b"6 stdout F 67"]
    assert world.count("events_cut") == 2


def test_the_bytes_of_a_group_are_limited(tmp_path: Path) -> None:
    world = world_of(tmp_path, max_bytes=1024)
    world.append("a", lines(*(b"%d stdout P " % n + b"x" * 300 for n in range(5))))
    world.append("a", lines(b"9 stdout F end"))
    world.look_and_wait(2_000)
    assert [len(value) for value in values(world)] == [911, 614]
    assert sum(value.count(b"x") for value in values(world)) == 1500


def test_a_group_larger_than_a_batch_is_in_one_transaction(tmp_path: Path) -> None:
    """All records of a group must be in one transaction, even if they fill many batches.

    The stderr records between two parts of a stdout line are small but have large headers. They
    need more batches than the window of a partition allows.
    """
    multiline = {"preset": "cri", "max_age": "1s"}
    world = World(tmp_path, ["a*"], multiline=multiline, headers={"big": "x" * 900})
    world.limit = 4_096
    stderr = [b"%d stderr F x" % number for number in range(150)]
    world.append("a", lines(b"0 stdout P a", *stderr, b"9 stdout F b"))
    world.scan()
    world.feeder.step(world.now_ms)
    world.commit()
    assert values(world) == [*stderr, b"0 stdout F ab"]
    world.kill()
    world.up()
    world.look_and_wait(2_000)
    assert len(values(world)) == 151


def test_carriage_returns_and_empty_parts(tmp_path: Path) -> None:
    world = world_of(tmp_path)
    world.append("a", b"1 stdout P a\r\n2 stdout P \r\n3 stdout F b\r\n4 stdout F c\r\n")
    world.look()
    assert values(world) == [b"1 stdout F ab", b"4 stdout F c"]


def test_tags_behind_the_first_are_kept(tmp_path: Path) -> None:
    world = world_of(tmp_path)
    world.append("a", lines(b"1 stdout P:x:y a", b"2 stdout F:x b"))
    world.look()
    assert values(world) == [b"1 stdout F:x:y ab"]


def test_letters_cut_between_parts_become_whole(tmp_path: Path) -> None:
    """A runtime splits a line after a number of bytes, which can be within a character."""
    world = world_of(tmp_path)
    letter = "é".encode()
    world.append("a", lines(b"1 stdout P caf" + letter[:1], b"2 stdout F " + letter[1:] + b"!"))
    world.look()
    assert values(world) == ["1 stdout F café!".encode()]


# --- Docker's json-file ---------------------------------------------------------------------------


def test_parts_of_dockers_json_are_joined(tmp_path: Path) -> None:
    world = world_of(tmp_path, "docker")
    world.append(
        "a",
        lines(
            docker("whole\n", time=1),
            docker("part one ", time=2),
            docker("err\n", "stderr", 3),
            docker('and "two" \\', time=4),
            docker("n\n", time=5),
            docker("ends in a backslash and n: \\n", time=6),
            docker("\n", time=7),
        ),
    )
    world.look()
    assert [json.loads(value) for value in values(world)] == [
        json.loads(docker("whole\n", time=1)),
        json.loads(docker("err\n", "stderr", 3)),
        json.loads(docker('part one and "two" \\n\n', time=2)),
        json.loads(docker("ends in a backslash and n: \\n\n", time=6)),
    ]


def test_escapes_cut_between_parts_become_one_letter(tmp_path: Path) -> None:
    world = world_of(tmp_path, "docker")
    first = b'{"log":"\\ud83d","stream":"stdout","time":"1"}'
    world.append("a", lines(first, b'{"log":"\\ude00\\n","stream":"stdout","time":"2"}'))
    world.look()
    (value,) = values(world)
    assert json.loads(value)["log"] == "\U0001f600\n"


# --- any order, any pieces ------------------------------------------------------------------------


def expected(rows: list[tuple[int, bytes, bytes, bytes]]) -> list[bytes]:
    """Return the expected records in the order in which their groups end. This model knows no
    blocks."""
    out: list[bytes] = []
    opened: dict[bytes, list[bytes]] = {}
    for number, stream, tag, text in rows:
        if tag == b"P":
            opened.setdefault(stream, [b"%d %s F " % (number, stream)]).append(text)
        elif stream in opened:
            out.append(b"".join([*opened.pop(stream), text]))
        else:
            out.append(b"%d %s F %s" % (number, stream, text))
    return out


@pytest.mark.parametrize("trial", range(10))
def test_records_are_the_same_whatever_is_read_in_one_go(tmp_path: Path, trial: int) -> None:
    number = seed() + trial
    dice = random.Random(number)
    rows = [
        (
            index,
            dice.choice((b"stdout", b"stderr")),
            b"P" if dice.random() < 0.4 else b"F",
            bytes(dice.choices(b"abc ", k=dice.randrange(6))),
        )
        for index in range(120)
    ]
    rows += [(120, b"stdout", b"F", b"end"), (121, b"stderr", b"F", b"end")]
    data = lines(*(b"%d %s %s %s" % row for row in rows))
    world = world_of(tmp_path)
    at = 0
    while at < len(data):
        step = dice.randrange(1, 200)
        world.append("a", data[at : at + step])
        at += step
        world.scan()
        world.read()
        if dice.random() < 0.2:
            world.kill()
            world.up()
    world.look_and_wait(100)
    assert values(world) == expected(rows), f"MILLRACE_SEED={number}"
