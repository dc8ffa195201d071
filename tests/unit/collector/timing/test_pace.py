"""The rate limit of an input: over time, over many files, and beside another input."""

from pathlib import Path

from collector.timing.pace import ReadLimit
from tests.unit.collector.world import World


def test_what_was_read_is_paid_for_before_the_next_block() -> None:
    pace = ReadLimit(1000)
    assert pace.wait_until_ms(50) is None
    pace.took(500, 50)
    assert pace.wait_until_ms(549) == 551
    assert pace.wait_until_ms(550) is None
    pace.took(500, 10_000)
    assert pace.wait_until_ms(10_001) == 10_501, "time in which nothing was read is not saved up"


def lines_of(world: World, first: bytes) -> int:
    return sum(line.startswith(first) for line in world.lines)


def test_files_of_an_input_share_its_pace_and_another_input_has_none(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.change(
        {"paths": [f"{tmp_path}/a*"], "topic": "t", "max_bytes_per_second": "1MiB"},
        {"paths": [f"{tmp_path}/b*"], "topic": "t"},
    )
    count = 3 * (1 << 20) // 100
    for name in ("a1", "a2", "b1"):
        world.append(name, b"".join(b"%s%097d\n" % (name.encode(), n) for n in range(count)))
    begun_ms, at_4_s = world.now_ms, 0
    world.scan()
    while len(world.lines) < 3 * count:
        world.feeder.step(world.now_ms)
        world.send()
        if not world.feeder.is_busy:
            world.commit()
            if world.now_ms - begun_ms == 0:
                assert lines_of(world, b"b1") == count
            if world.now_ms - begun_ms <= 4_000:
                at_4_s = lines_of(world, b"a")
            world.now_ms += 50
    took_ms = world.now_ms - begun_ms
    # Six mebibytes are read. The limiter delays the next read after each block, so the last block
    # is not delayed yet.
    assert 4_900 <= took_ms <= 6_200
    assert 3.5 * (1 << 20) <= at_4_s * 100 <= 5.1 * (1 << 20)
    assert min(lines_of(world, b"a1"), lines_of(world, b"a2")) == count
    assert world.feeder.is_waiting, "the last block is paid for, too"
    world.now_ms += 1_100
    world.read()
    assert not world.feeder.is_waiting


def test_a_huge_file_and_a_thousand_small_ones_come_along_together(tmp_path: Path) -> None:
    """Every small file is read within two rounds of turns, no matter how large the huge file is."""
    world = World(tmp_path)
    world.path("b-huge").write_bytes(world.new_lines(400_000))
    for number in range(1000):
        world.append(f"a{number:04}", b"small %d\n" % number)
    world.scan()
    steps = 0
    while lines_of(world, b"small") < 1000:
        world.feeder.step(world.now_ms)
        world.commit()
        steps += 1
    huge = len(world.lines) - 1000
    assert steps <= 1000 // 64 + 2
    assert 0 < huge < 400_000
    while len(world.lines) < 401_000:
        world.feeder.step(world.now_ms)
        world.commit()
