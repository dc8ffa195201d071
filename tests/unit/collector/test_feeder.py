"""Turns and batches together: live lines beside a backlog, fairness, back-pressure."""

import random
from pathlib import Path

from collector.config import BACKFILL_BYTES
from collector.outbox import Batch
from tests.unit.collector.blocks import seed
from tests.unit.collector.world import World


def test_a_large_old_file_does_not_delay_fresh_lines(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.path("b-old").write_bytes(world.new_lines(4 * BACKFILL_BYTES // 100))
    world.scan()
    while len(world.lines) < 10_000:
        for batch in world.feeder.step(world.now_ms):
            world._take(batch)
    world.append("a", b"fresh\n")
    world.scan()
    before = len(world.lines)
    for batch in world.feeder.step(world.now_ms, flush=True):
        world._take(batch)
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
        for batch in world.feeder.step(world.now_ms):
            world._take(batch)
    counts = [sum(line.startswith(name) for line in world.lines) for name in (b"a1", b"a2", b"a3")]
    assert min(counts) > 5_000


def test_without_acknowledgements_reading_stops_at_the_window(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.path("a").write_bytes(world.new_lines(200_000))
    world.scan()
    waiting: list[Batch] = []
    for _ in range(1000):
        waiting += world.feeder.step(world.now_ms)
        if not world.feeder.is_busy:
            break
    held = world.feeder.outbox.bytes_held
    assert not world.feeder.is_busy
    assert 0 < held <= (1 << 24) + (1 << 20)
    assert held < 200_000 * 100
    for batch in waiting:
        world._take(batch)
    world.read()
    assert world.numbers == list(range(1, 200_001))


def test_what_found_no_room_is_read_again(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.limit = 5_000
    world.path("a").write_bytes(world.new_lines(2_000))
    world.scan()
    waiting: list[Batch] = []
    while world.feeder.is_busy:
        waiting += world.feeder.step(world.now_ms)
    assert sum(batch.record_count for batch in waiting) < 1_000
    for batch in waiting:
        world._take(batch)
    world.read()
    assert world.numbers == list(range(1, 2_001))


def test_refused_batches_come_again_in_any_order_of_answers(tmp_path: Path) -> None:
    number = seed()
    rng = random.Random(number)
    world = World(tmp_path)
    world.limit = 5_000
    waiting: list[Batch] = []
    for step in range(400):
        if step < 200:
            world.write(rng.randint(1, 40), rng.choice(("a", "b1", "b2")))
            world.scan()
        world.now_ms += rng.choice((1, 10, 100, 1000))
        waiting += world.feeder.step(world.now_ms)
        count = rng.randrange(min(6, len(waiting) + 1))
        answered, waiting = waiting[:count], waiting[count:]
        for batch in answered:
            if rng.random() < 0.1:
                world.feeder.refused(batch, world.now_ms)
            else:
                world._take(batch)
    while waiting or not world.feeder.outbox.is_empty or world.feeder.is_busy:
        for batch in waiting:
            world._take(batch)
        world.now_ms += 10_000
        waiting = world.feeder.step(world.now_ms, flush=True)
    assert len(world.lines) == len(set(world.lines)), f"MILLRACE_SEED={number}"
    written = sum(path.stat().st_size for path in world.folder.iterdir()) // 100
    assert len(world.lines) == written, f"MILLRACE_SEED={number}"
