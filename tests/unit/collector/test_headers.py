"""The headers of an input are on every record of its lines, whatever their kind, and on no other
record."""

from pathlib import Path

from collector.send.addresses import Addresses
from collector.text.encode import header_octets
from tests.unit.collector.world import HOST, World

HEADERS = {"host": "{host}", "env": "production", "where": "rack 7 of {host}"}
EXPECTED = ((b"host", HOST.encode()), (b"env", b"production"), (b"where", b"rack 7 of a-host"))


def test_each_record_carries_the_headers_of_its_input(tmp_path: Path) -> None:
    world = World(tmp_path, headers=HEADERS)
    world.write(3, "a")
    world.write(2_000, "b")
    world.look()
    assert len(world.headers) == 2_003
    assert set(world.headers) == {EXPECTED}


def test_an_input_without_headers_gives_none(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.write(20, "a")
    world.look()
    assert set(world.headers) == {()}


def test_an_event_and_a_line_without_its_end_carry_them_too(tmp_path: Path) -> None:
    world = World(tmp_path, headers=HEADERS, multiline={"continue": "^ ", "max_age": "100ms"})
    world.append("a", b"one\n two\nthree\n")
    world.look()
    world.append("a", b"half")
    world.look()
    world.path("a").unlink()
    world.quiet()
    assert world.headers[0] == EXPECTED
    unfinished = [
        headers for (_, line), headers in zip(world.sent, world.headers, strict=True)
        if line == b"half"
    ]  # fmt: skip
    assert unfinished == [(*EXPECTED, (b"millrace.unfinished", b"1"))]


def test_other_headers_hold_for_what_is_read_from_then_on(tmp_path: Path) -> None:
    world = World(tmp_path, headers={"v": "1"})
    world.write(20, "a")
    world.look()
    section: dict[str, object] = {
        "paths": [f"{tmp_path}/a*"],
        "topic": "t",
        "headers": {"v": "2"},
    }
    world.change(section)
    world.write(20, "a")
    world.look()
    world.expect(40, renamed=0, lost_possible=0)
    assert world.headers == [((b"v", b"1"),)] * 20 + [((b"v", b"2"),)] * 20


def test_headers_of_a_kilobyte_leave_a_line_less_room_in_a_small_batch(tmp_path: Path) -> None:
    world = World(tmp_path, headers={f"h{n}": "x" * 1_000 for n in range(3)})
    world.limit = 10_000
    world.up()
    world.append("a", b"y" * 9_000 + b"\nend\n")
    world.look()
    *pieces, end = world.lines
    assert (b"".join(pieces), end) == (b"y" * 9_000, b"end")
    assert [len(piece) > 6_900 for piece in pieces] == [True, False]


def test_headers_beyond_what_a_topic_takes_leave_the_brokers_to_refuse_it(tmp_path: Path) -> None:
    """The brokers' refusal shows the fault to the administrator. Once the topic's limit is raised,
    every line is sent."""
    world = World(tmp_path, headers={f"h{n}": "x" * 1_000 for n in range(3)})
    world.limit = 2_000
    world.up()
    world.write(3, "a")
    world.scan()
    world.feeder.step(world.now_ms)
    taken = world.feeder.outbox.take(everything=True)
    assert [batch.record_count for batch in taken] == [1, 1, 1]
    for batch in taken:
        world.feeder.outbox.given_back(batch, was_acknowledged=False)
    again = world.feeder.outbox.take(everything=True)
    assert [batch.record_count for batch in again] == [1, 1, 1]
    for batch in again:
        world.feeder.outbox.given_back(batch, was_acknowledged=False)
    world.limit = 10_000
    world.read()
    world.expect(3, new=1)


def test_a_collector_of_a_group_names_itself_on_each_record(tmp_path: Path) -> None:
    """Its name comes before the headers of the input, whatever the kind of the record."""
    own = (b"millrace.host", b"web-07")
    world = World(tmp_path, headers=HEADERS, name="web-07")
    world.write(3, "a")
    world.append("a", b"half")
    world.look()
    world.path("a").unlink()
    world.quiet()
    unfinished = (own, *EXPECTED, (b"millrace.unfinished", b"1"))
    assert world.headers == [(own, *EXPECTED)] * 3 + [unfinished]


def test_the_name_of_a_collector_leaves_a_line_less_room(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.write(1, "a")
    world.look()
    (generation,) = world.registry.generations.values()
    named, plain = (Addresses(HOST, name).overhead_max(generation) for name in ("n" * 100, None))
    assert named - plain == len(header_octets(((b"millrace.host", b"n" * 100),))) - 1
