"""Archives of every compression: new archives, copies of files already sent, and damaged or hostile
archives."""

import bz2
import gzip
import lzma
import random
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard

from collector.text.archive import MEMBER_WORK_BYTES, OUT_BYTES, CompressedFile, Inflater
from collector.text.decompressors import COMPRESSIONS, HEAD_BYTES_MAX, compression_of
from tests.unit.collector.world import World


def zstd(data: bytes) -> bytes:
    return zstandard.ZstdCompressor(write_checksum=True).compress(data)


PACK: dict[str, Callable[[bytes], bytes]] = {
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
    ".zst": zstd,
}
ENDINGS = pytest.mark.parametrize("ending", PACK)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def read_all(packed: bytes) -> tuple[bytes, CompressedFile]:
    """Return the content of an archive as the reader gets it, and the archive."""
    kind = compression_of(packed)
    assert kind is not None
    archive = CompressedFile(kind)

    def read_raw(offset: int, length: int) -> bytes:
        return packed[offset : offset + length]

    while archive.examine(read_raw, len(packed)):
        pass
    found = bytearray()
    while archive.content_size is not None and len(found) < archive.content_size:
        piece = archive.read(read_raw, len(found), 100_000)
        found += piece or b""
    return bytes(found), archive


@ENDINGS
def test_one_that_is_dropped_in_is_read_once_it_is_whole(world: World, ending: str) -> None:
    data = PACK[ending](world.new_lines(300))
    third = len(data) // 3
    for start, end in ((0, 5), (5, third), (third, 2 * third)):
        world.append(f"b{ending}", data[start:end])
        world.look()
        assert world.lines == []
    world.kill()
    world.up()
    world.append(f"b{ending}", data[2 * third :])
    world.look()
    world.expect(300, new=1, files_damaged=0)
    world.down()
    world.up()
    world.look()
    world.expect(300)


@ENDINGS
def test_it_is_known_by_its_first_bytes_whatever_its_name(world: World, ending: str) -> None:
    world.path("backup").write_bytes(PACK[ending](world.new_lines(20)))
    world.look()
    assert world.numbers == list(range(1, 21))


@ENDINGS
def test_the_copy_of_a_counted_file_is_done(world: World, ending: str) -> None:
    world.write(20, "a")
    world.move("a", "a.1")
    world.look()
    world.path(f"a.1{ending}").write_bytes(PACK[ending](world.path("a.1").read_bytes()))
    world.path("a.1").unlink()
    world.look()
    world.quiet()
    world.expect(20, archive_done=1, lost_possible=0)
    world.down()
    world.move(f"a.1{ending}", f"a.2{ending}")
    world.up()
    world.look()
    world.expect(20, renamed=1)


@ENDINGS
def test_the_copy_of_a_file_whose_turn_has_not_come_waits_for_it(world: World, ending: str) -> None:
    """Files with a backlog take turns. The original has not been read yet, so its content is
    unknown and the archive must wait."""
    world.write(20, "a.1")
    world.scan_for("b")
    world.path(f"a.1{ending}").write_bytes(PACK[ending](world.path("a.1").read_bytes()))
    for _ in range(2):
        world.scan_for(f"a.1{ending}")
        world.read()
    assert world.lines == []
    world.look()
    world.path("a.1").unlink()
    world.look()
    world.quiet()
    world.expect(20, archive_done=1, lost_possible=0)


@ENDINGS
@pytest.mark.parametrize(
    ("count", "is_seen"), [(3, True), (30, True), (30, False)], ids=["short", "long", "unseen"]
)
def test_so_does_one_that_was_renamed_before_it_was_compared(
    world: World, ending: str, count: int, is_seen: bool
) -> None:
    """logrotate compresses the original, deletes it and renames the archive, all between two scans.
    So the collector first sees the archive under its second name."""
    world.write(count, "a.1")
    world.scan_for("b")
    (original,) = world.registry.generations.values()
    world.feeder.reader.keep(original)
    data = PACK[ending](world.path("a.1").read_bytes())
    if is_seen:
        world.path(f"a.1{ending}").write_bytes(data[:0])
        world.scan_for("b")
    world.path(f"a.1{ending}").write_bytes(data)
    world.path("a.1").unlink()
    world.move(f"a.1{ending}", f"a.2{ending}")
    world.scan_for(f"a.2{ending}")
    world.read()
    world.look()
    world.quiet()
    world.expect(count, archive_done=1, lost_possible=0)


@ENDINGS
def test_the_copy_of_a_file_that_went_unread_is_read(world: World, ending: str) -> None:
    world.write(20, "a.1")
    world.scan_for("b")
    world.path(f"a.1{ending}").write_bytes(PACK[ending](world.path("a.1").read_bytes()))
    world.path("a.1").unlink()
    world.look()
    world.quiet()
    assert world.numbers == list(range(1, 21))


@ENDINGS
def test_an_archive_does_not_wait_for_a_line_without_its_end(world: World, ending: str) -> None:
    world.append("a", b"a half line")
    world.path(f"a.1{ending}").write_bytes(PACK[ending](world.new_lines(20)))
    world.look()
    assert world.numbers == list(range(1, 21))


@ENDINGS
def test_a_copy_made_while_it_was_down_is_read_from_the_position_on(
    world: World, ending: str
) -> None:
    world.write(20, "a")
    world.look()
    world.down()
    world.write(10, "a")
    world.path(f"a.1{ending}").write_bytes(PACK[ending](world.path("a").read_bytes()))
    world.path("a").unlink()
    world.up()
    world.look()
    world.quiet()
    world.expect(30, archive_continued=1)
    assert set(world.keys) == {b"a"}


@ENDINGS
def test_of_a_damaged_one_what_precedes_the_damage_counts(world: World, ending: str) -> None:
    whole = PACK[ending](world.new_lines(3000) + b"no line end")
    world.path(f"b{ending}").write_bytes(whole + whole[:HEAD_BYTES_MAX] + b"\xff" * 64 + whole)
    world.look()
    world.quiet()
    assert world.numbers == list(range(1, 3001))
    assert world.sent[-1] == ("millrace.dead-letters", b"no line end")
    assert world.count("files_damaged") == 1
    assert world.count("dead_lettered") == 1


@ENDINGS
def test_read_half_way_it_goes_on_there(world: World, ending: str) -> None:
    world.path(f"b{ending}").write_bytes(PACK[ending](world.new_lines(80_000)))
    world.scan()
    while len(world.lines) < 8000:
        world.feeder.step(world.now_ms)
        world.commit()
    assert len(world.lines) < 80_000
    world.kill()
    world.up()
    world.look()
    assert world.numbers == list(range(1, 80_001))


@ENDINGS
def test_its_head_may_be_asked_for_on_the_way_to_a_place_far_inside(ending: str) -> None:
    """A resumed archive is decompressed from its start to its position. In between, its head is
    read again. If that restarted the decompression, it would never reach the position."""
    content = b"".join(b"%099d\n" % number for number in range(120_000))
    packed = PACK[ending](content)
    archive = CompressedFile(compression_of(packed) or COMPRESSIONS[0])

    def read_raw(offset: int, length: int) -> bytes:
        return packed[offset : offset + length]

    while archive.examine(read_raw, len(packed)):
        pass
    found = None
    for _ in range(1000):
        assert archive.read(read_raw, 0, 4096) == content[:4096]
        found = archive.read(read_raw, len(content) - 1024, 1024)
        if found is not None:
            break
    assert found == content[-1024:]


@ENDINGS
def test_members_and_the_padding_behind_them(ending: str) -> None:
    packed = PACK[ending](b"one\n") + PACK[ending](b"") + PACK[ending](b"two\n") + b"\0" * 100
    found, archive = read_all(packed)
    assert found == b"one\ntwo\n"
    assert archive.damage is None


@ENDINGS
def test_what_follows_the_last_member_and_is_none_is_a_damage(ending: str) -> None:
    found, archive = read_all(PACK[ending](b"one\n") + b"and more")
    assert found == b"one\n"
    assert archive.damage == "other bytes follow the archive"


@ENDINGS
def test_a_member_of_which_one_byte_is_there_ends_the_turn(ending: str) -> None:
    packed = PACK[ending](b"one\n")
    archive = CompressedFile(compression_of(packed) or COMPRESSIONS[0])
    grown = packed + packed[:1]
    while archive.examine(lambda offset, length: grown[offset : offset + length], len(grown)):
        pass
    assert archive.content_size is None


@ENDINGS
def test_how_it_is_cut_into_pieces_makes_no_difference(ending: str) -> None:
    dice = random.Random(7)
    content = b"".join(b"%d %s\n" % (n, dice.randbytes(n % 90).hex().encode()) for n in range(5000))
    packed = PACK[ending](content[:99_999]) + PACK[ending](content[99_999:])
    kind = compression_of(packed)
    assert kind is not None
    for most in (1, 7, 1000, 200_000):
        inflater, found, at = Inflater(kind), bytearray(), 0
        while not (at == len(packed) and inflater.wants_input):
            if inflater.wants_input:
                piece = packed[at : at + dice.randint(1, most)]
                inflater.feed(piece)
                at += len(piece)
            found += inflater.inflate()
        assert inflater.damage is None
        assert inflater.is_between_members
        assert found == content


@ENDINGS
def test_a_megabyte_that_stands_for_gigabytes_comes_in_steps(ending: str) -> None:
    inflater = Inflater(compression_of(PACK[ending](b"")) or COMPRESSIONS[0])
    packed = PACK[ending](bytes(64 << 20))
    inflater.feed(packed)
    sizes = []
    while not inflater.wants_input:
        sizes.append(len(inflater.inflate()))
    assert sum(sizes) == 64 << 20
    assert max(sizes) <= OUT_BYTES


@ENDINGS
def test_members_that_hold_nothing_cost_something(ending: str) -> None:
    """An empty member must use up some of the budget of a turn. Otherwise a turn in a file of empty
    members would never end."""
    packed = PACK[ending](b"") * 100
    inflater = Inflater(compression_of(packed) or COMPRESSIONS[0])
    inflater.feed(packed)
    while not inflater.wants_input:
        inflater.inflate()
    assert inflater.is_between_members
    assert inflater.work >= 100 * MEMBER_WORK_BYTES


def test_text_that_begins_like_bzip2_is_text(world: World) -> None:
    world.append("b", b"BZh9 is how the line begins\n")
    world.append("b.log.bz2", b"BZh91AY is none either\n")
    world.look()
    assert sorted(world.lines) == [b"BZh9 is how the line begins", b"BZh91AY is none either"]


def test_zstd_frames_that_are_to_be_skipped_are(world: World) -> None:
    skipped = b"\x5a\x2a\x4d\x18" + (300_000).to_bytes(4, "little") + b"x" * 300_000
    found, archive = read_all(skipped + zstd(b"one\n") + skipped + zstd(b"two\n"))
    assert found == b"one\ntwo\n"
    assert archive.damage is None


def test_a_zstd_frame_that_wants_gigabytes_is_said() -> None:
    frame = b"\x28\xb5\x2f\xfd" + b"\x00\xa0" + b"\x01\x00\x00"
    found, archive = read_all(zstd(b"one\n") + frame)
    assert found == b"one\n"
    assert "memory" in (archive.damage or "")
