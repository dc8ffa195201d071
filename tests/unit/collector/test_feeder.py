"""Reading and batching together: live lines beside a backlog, fairness, back-pressure, aborts."""

import random
from pathlib import Path

from collector.config.settings import BACKFILL_BYTES, COMMIT_MS, NEW_BYTES, SHARED_BLOCK_BYTES
from collector.send.lag_windows import LINES_FIRST
from tests.unit.collector.blocks import seed
from tests.unit.collector.world import World


def test_a_large_old_file_does_not_delay_fresh_lines(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.path("b-old").write_bytes(world.new_lines(4 * BACKFILL_BYTES // 100))
    world.scan()
    while len(world.lines) < 10_000:
        world.feeder.step(world.now_ms)
        world.commit()
    world.append("a", b"fresh\n")
    world.scan()
    before = len(world.lines)
    world.feeder.step(world.now_ms)
    world.commit()
    assert b"fresh" in world.lines
    # Before the fresh line came only an open batch and one block of the old file.
    assert len(world.lines) - before <= 2 * (1 << 20) // 100
    world.read()
    assert len(set(world.lines)) == 4 * BACKFILL_BYTES // 100 + 1


def test_files_take_turns(tmp_path: Path) -> None:
    world = World(tmp_path)
    for name in ("a1", "a2", "a3"):
        world.path(name).write_bytes(
            b"".join(b"%s %095d\n" % (name.encode(), n) for n in range(30_000))
        )
    world.scan()
    while len(world.lines) < 45_000:
        world.feeder.step(world.now_ms)
        world.commit()
    counts = [sum(line.startswith(name) for line in world.lines) for name in (b"a1", b"a2", b"a3")]
    assert min(counts) > 5_000


def test_without_commits_reading_stops_at_the_bound(tmp_path: Path) -> None:
    world = World(tmp_path)
    for name in ("a", "b"):
        world.path(name).write_bytes(world.new_lines(200_000))
    world.scan()
    for _ in range(1000):
        world.feeder.step(world.now_ms)
        world.send()
        if not world.feeder.is_busy:
            break
    held = world.feeder.outbox.bytes_held
    assert not world.feeder.is_busy
    assert 0 < held <= (1 << 24) + (1 << 20)
    assert held < 400_000 * 100
    world.commit()
    world.read()
    assert sorted(world.numbers) == list(range(1, 400_001))


def test_what_found_no_room_is_read_again(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.limit = 5_000
    world.path("a").write_bytes(world.new_lines(2_000))
    world.scan()
    while world.feeder.is_busy:
        world.feeder.step(world.now_ms)
    assert sum(batch.record_count for batch in world.feeder.outbox.take(everything=False)) < 1_000
    world.kill()
    world.up()
    world.scan()
    world.read()
    assert world.numbers == list(range(1, 2_001))


def test_transactions_end_in_any_way_and_nothing_is_lost_or_doubled(tmp_path: Path) -> None:
    number = seed()
    rng = random.Random(number)
    world = World(tmp_path)
    world.limit = 5_000
    for step in range(400):
        if step < 200:
            world.write(rng.randint(1, 40), rng.choice(("a", "b1", "b2")))
            world.scan()
        world.now_ms += rng.choice((1, 10, 100, 1000))
        world.feeder.step(world.now_ms)
        world.send()
        ending = rng.random()
        if ending < 0.2:
            world.commit()
        elif ending < 0.3:
            world.abort()
        elif ending < 0.33:
            world.start_over()
            world.scan()
        elif ending < 0.36:
            world.kill()
            world.up()
            world.scan()
    world.read()
    assert len(world.lines) == len(set(world.lines)), f"MILLRACE_SEED={number}"
    written = sum(path.stat().st_size for path in world.folder.iterdir()) // 100
    assert len(world.lines) == written, f"MILLRACE_SEED={number}"
    for name in (b"a", b"b1", b"b2"):
        found = [
            int(line) for key, line in zip(world.keys, world.lines, strict=True) if key == name
        ]
        assert found == sorted(found), f"MILLRACE_SEED={number}"


def test_an_old_file_waits_in_its_file_for_live_lines_of_its_partition(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.write(1, "a")
    world.scan()
    world.read()
    world.write(1, "a")
    world.path("b-old").write_bytes(world.new_lines(2 * BACKFILL_BYTES // 100))
    written = 2 + 2 * BACKFILL_BYTES // 100
    read_before = 0
    while len(world.lines) < written:
        before = len(world.lines)
        world.scan()
        for _ in range(100):
            world.feeder.step(world.now_ms)
            world.commit()
        assert len(world.lines) - read_before <= LINES_FIRST + 2 * SHARED_BLOCK_BYTES // 100
        assert len(world.lines) > before, "and goes on when the reader has what was there"
        read_before = len(world.lines)
        world.tell_progress(read_before)
    assert world.numbers[0] == 1
    assert sorted(world.numbers) == list(range(1, written + 1)), "each line once"
    old = [number for number in world.numbers if number > 2]
    assert old == sorted(old), "in the order of its file"


def test_a_file_that_keeps_up_waits_for_nothing(tmp_path: Path) -> None:
    world = World(tmp_path)
    for name in ("a", "b"):
        world.write(1, name)
    world.scan()
    world.read()
    for _ in range(30):
        for name in ("a", "b"):
            world.write(NEW_BYTES // 50, name)
        world.scan()
        world.read()
    assert len(world.lines) == 2 + 60 * (NEW_BYTES // 50)
    assert world.feeder.windows.to_ask(world.now_ms) == []


def test_old_lines_beside_live_ones_are_committed_as_soon_as_those(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.write(1, "a")
    world.scan()
    world.read()
    world.write(1, "a")
    world.scan()
    world.read()
    world.path("b-old").write_bytes(world.new_lines(2 * BACKFILL_BYTES // 100))
    world.scan()
    world.feeder.step(world.now_ms)
    world.tell_progress(2)
    world.feeder.rhythm.cut(world.now_ms)
    world.feeder.step(world.now_ms)
    assert world.feeder.rhythm.deadline_ms == world.now_ms + COMMIT_MS


def test_a_file_that_is_removed_while_it_waits_is_read_all_the_same(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.write(1, "a")
    world.scan()
    world.read()
    world.write(1, "a")
    world.scan()
    world.read()
    world.path("b-old").write_bytes(world.new_lines(2 * BACKFILL_BYTES // 100))
    written = 2 + 2 * BACKFILL_BYTES // 100
    world.scan()
    world.feeder.step(world.now_ms)
    assert world.feeder.held_files == 1
    assert len(world.lines) == 2, "nothing of it was read yet"
    world.path("b-old").unlink()
    for _ in range(100):
        world.scan()
        world.tell_progress(len(world.lines))
        for _ in range(20):
            world.feeder.step(world.now_ms)
            world.commit()
    assert sorted(world.numbers) == list(range(1, written + 1))


def test_a_file_that_is_gone_waits_for_no_topic(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.write(1, "a")
    world.scan()
    world.read()
    world.write(1, "a")
    world.path("b-old").write_bytes(world.new_lines(2 * BACKFILL_BYTES // 100))
    world.scan()
    world.feeder.step(world.now_ms)
    assert world.feeder.is_waiting
    world.path("b-old").write_bytes(b"")
    world.scan()
    world.tell_progress(len(world.lines))
    world.read()
    assert not world.feeder.is_waiting
