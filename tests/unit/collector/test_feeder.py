"""Turns and batches together: live lines beside a backlog, fairness, back-pressure, aborts."""

import random
from pathlib import Path

from collector.config import BACKFILL_BYTES
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
    # In between came a batch that was open and one block of the old file, not all of it.
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
