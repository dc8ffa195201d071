"""Multi-line events are the same for any size of reads, and across restarts, waits and
rotations."""

import random
import re
from pathlib import Path

import pytest

from collector.config.multiline import PRESETS, By, EventRules
from collector.text.encodings import Encoding
from collector.text.fingerprint import Evidence
from collector.text.lines import LineRules, Overlong, RecordKind
from collector.text.tailer import Tailer
from tests.unit.collector.blocks import seed
from tests.unit.collector.world import EVENTS, LOOK_MS, World

TRACES = {
    "java": b"""12:00:01 ERROR request failed
java.lang.IllegalStateException: no such user
\tat com.shop.Users.find(Users.java:42)
\tat com.shop.Api.get(Api.java:17)
Caused by: java.sql.SQLException: gone
\tat com.mysql.Driver.connect(Driver.java:1)
\t... 12 more
12:00:02 INFO next
12:00:02 WARN java.util is fine
""",
    "python": b"""12:00:01 ERROR request failed
Traceback (most recent call last):
  File "api.py", line 17, in get
    return users[name]
           ~~~~~^^^^^^
KeyError: 'x'

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "api.py", line 19, in get
    raise requests.exceptions.ConnectTimeout("late")
requests.exceptions.ConnectTimeout: late
12:00:02 INFO next
12:00:02 INFO and one more
""",
    "go": b"""panic: runtime error: index out of range [5] with length 3

goroutine 1 [running]:
main.(*Server).handle(0xc0000b2000, {0x1, 0x2})
\t/srv/main.go:17 +0x1d
main.main()
\t/srv/main.go:9 +0x25
created by net/http.(*Server).Serve in goroutine 7
\t/usr/lib/go/src/net/http/server.go:3086 +0x5cb
exit status 2
2026/11/25 12:00:02 next
2026/11/25 12:00:02 and one more
""",
}


@pytest.mark.parametrize("preset", sorted(PRESETS))
def test_a_trace_and_the_line_before_it_are_one_event(tmp_path: Path, preset: str) -> None:
    world = World(tmp_path, multiline=preset)
    world.append("a", TRACES[preset])
    world.look_and_wait(5_000)
    lines = TRACES[preset].decode().splitlines()
    assert [record.decode() for _, record in world.records] == [
        "\n".join(lines[:-2]),
        *lines[-2:],
    ]
    assert world.feeder.deadline_ms is None


def expected(lines: list[str], rules: EventRules, unit: int) -> list[str]:
    """Return the events that the rules give, computed line by line."""
    events: list[list[str]] = []
    for line in lines:
        is_open = bool(events)
        if is_open and rules.by is By.END:
            is_open = not rules.pattern.search(events[-1][-1])
        elif is_open:
            is_open = bool(rules.pattern.search(line)) is (rules.by is By.CONTINUE)
        size = sum(len(one) + 1 for one in events[-1]) if events else 0
        fits = is_open and (size + len(line) + 1) * unit <= rules.max_bytes
        if fits and len(events[-1]) < rules.max_lines:
            events[-1].append(line)
        else:
            events.append([line])
    return ["\n".join(event) for event in events]


@pytest.mark.parametrize("by", [By.START, By.CONTINUE, By.END])
@pytest.mark.parametrize("name", ["utf-8", "utf-16-le"])
def test_any_growth_and_any_restart_gives_the_same_events(by: By, name: str) -> None:
    number = seed()
    rng = random.Random(f"{number} {by} {name}")
    encoding = Encoding(name)
    unit = encoding.unit_bytes
    for _ in range(40):
        max_bytes = rng.choice((20, 60, 400))
        rules = EventRules(by, re.compile("^x"), rng.choice((2, 3, 50)), max_bytes * unit, 1_000)
        lines = ["".join(rng.choices("xyz", k=rng.choice((0, 1, 5, 18)))) for _ in range(60)]
        end = rng.choice(("\n", "\r\n"))
        data = "".join(line + end for line in lines).encode(name)
        line_rules = LineRules(400 * unit, True, Overlong.SPLIT, encoding, rules)
        seen, grown, records = 0, Tailer(line_rules, Evidence(), 64), []
        while seen < len(data):
            seen = min(len(data), seen + rng.choice((1, 7, 40, 300)))
            while (request := grown.request(seen, rng.choice((8, 16, 64)))) is not None:
                got = memoryview(data)[request.offset : min(seen, request.offset + request.length)]
                for block in grown.take(request, got):
                    begin = 0
                    for newline in block.newlines.tolist():
                        records.append(bytes(block.data[begin:newline]))
                        begin = newline + 1
                    grown.hand_out(block)
            if seen < len(data) and rng.random() < 0.2:
                grown = Tailer(line_rules, Evidence().advance(data[: grown.position]), 64)
        records += [bytes(block.data[:-1]) for block in grown.take_final(memoryview(b""), seen)]
        texts = [record.decode().replace("\r", "") for record in records]
        if end == "\n":  # a CR counts as a byte of an event, so with CRLF an event can end earlier
            assert texts == expected(lines, rules, unit), f"MILLRACE_SEED={number}"
        assert "\n".join(texts).split("\n") == lines, f"MILLRACE_SEED={number}"


@pytest.mark.parametrize("sizes", [(12, 120, 173), (173,)])
def test_a_line_too_long_for_any_event_ends_the_one_before_it(sizes: tuple[int, ...]) -> None:
    rules = EventRules(By.CONTINUE, re.compile("^ "), 50, 100, 1_000)
    tailer = Tailer(LineRules(100, True, Overlong.SPLIT, Encoding(), rules), Evidence(), 1 << 20)
    data = b"one\n two\n " + b"x" * 150 + b"\n three\nfour\n"
    found = []
    for size in sizes:
        while (request := tailer.request(size)) is not None:
            view = memoryview(data)[request.offset : min(size, request.offset + request.length)]
            for block in tailer.take(request, view):
                found.append((block.kind, bytes(block.data)))
                tailer.hand_out(block)
    assert found == [
        (RecordKind.EVENTS, b"one\n two\n"),
        (RecordKind.PIECE, b" " + b"x" * 99 + b"\n"),
        (RecordKind.EVENTS, b"x" * 51 + b"\n three\n"),
    ]
    assert tailer.pending is not None
    assert bytes(tailer.pending.data) == b"four\n"


def traces(tmp_path: Path) -> World:
    return World(tmp_path, multiline={"indent": True, "max_age": "5s"})


def test_an_open_event_is_whole_when_nothing_followed_for_so_long(tmp_path: Path) -> None:
    world = traces(tmp_path)
    world.append("a", b"one\n two\n")
    world.scan()
    world.read()
    assert world.records == []
    assert world.feeder.deadline_ms == world.now_ms + 5_000
    world.now_ms += 4_000
    world.append("a", b" three\n")
    world.scan()
    world.read()
    world.now_ms += 4_999
    world.read()
    assert world.records == []
    world.now_ms += 1
    world.read()
    assert [record for _, record in world.records] == [b"one\n two\n three"]
    world.append("a", b" late\nnext\n")
    world.look_and_wait(5_000)
    assert [record for _, record in world.records][1:] == [b" late", b"next"]


def test_a_restart_in_an_event_gives_the_same_event(tmp_path: Path) -> None:
    world = traces(tmp_path)
    world.append("a", b"one\n two\nthree\n four\n")
    world.scan()
    world.read()
    assert [record for _, record in world.records] == [b"one\n two"]
    for end in (world.kill, world.down):
        end()
        world.up()
        world.append("a", b" more\n")
        world.scan()
        world.read()
    world.look_and_wait(5_000)
    assert [record for _, record in world.records] == [b"one\n two", b"three\n four\n more\n more"]


@pytest.mark.parametrize("is_copied", [False, True])
@pytest.mark.parametrize("is_killed", [False, True])
def test_an_event_cut_by_a_rotation_is_joined(
    tmp_path: Path, is_copied: bool, is_killed: bool
) -> None:
    world = traces(tmp_path)
    world.append("a", b"zero\none\n two\n")
    world.scan()
    world.read()
    if is_copied:
        world.path("a.1").write_bytes(world.path("a").read_bytes())
        world.path("a").write_bytes(b"")
    else:
        world.move("a", "a.1")
    world.append("a", b" three\n four\nnext\n")
    world.scan()
    world.read()
    if is_killed:
        world.kill()
        world.up()
    world.look_and_wait(5_000)
    assert [record for _, record in world.records] == [
        b"zero",
        b"one\n two\n three\n four",
        b"next",
    ]
    world.down()
    world.up()
    world.look_and_wait(5_000)
    assert len(world.records) == 3


def test_an_event_that_the_next_file_does_not_go_on_with_comes_first(tmp_path: Path) -> None:
    world = traces(tmp_path)
    world.append("a", b"one\n two\n")
    world.scan()
    world.read()
    world.move("a", "a.1")
    world.append("a", b"next\n last\nend\n")
    world.scan()
    world.read()
    world.now_ms += LOOK_MS
    world.read()
    assert [record for _, record in world.records] == [b"one\n two", b"next\n last"]
    assert world.count("events_joined") == 0


def test_an_open_event_of_a_truncated_file_is_sent_all_the_same(tmp_path: Path) -> None:
    world = traces(tmp_path)
    world.append("a", b"one\n two\n")
    world.scan()
    world.read()
    world.path("a").write_bytes(b"x\n")
    world.look_and_wait(5_000)
    assert [record for _, record in world.records] == [b"one\n two", b"x"]
    assert world.count("truncated") == 1


def test_events_that_a_limit_ends_are_counted(tmp_path: Path) -> None:
    world = World(tmp_path, multiline={"indent": True, "max_lines": 2})
    world.append("a", b"one\n two\n three\n four\nfive\n")
    world.look_and_wait(5_000)
    assert [record for _, record in world.records] == [b"one\n two", b" three\n four", b"five"]
    assert world.count("events_cut") == 2


@pytest.mark.parametrize("late_ms", [LOOK_MS, 10 * LOOK_MS])
def test_an_event_that_the_next_file_goes_on_with_is_given_however_late_that_is(
    tmp_path: Path, late_ms: int
) -> None:
    """The two files wait for each other. Even after a late scan, the first event must be sent."""
    world = World(tmp_path, **EVENTS)
    world.write(2, "a")
    world.scan()
    world.read()
    world.move("a", "a.1")
    world.write(1, "a")
    world.scan()
    world.read()
    world.now_ms += late_ms
    world.read()
    world.age()
    assert [record for _, record in world.records] == [b"%099d" % 1, b"%099d\n%099d" % (2, 3)]
