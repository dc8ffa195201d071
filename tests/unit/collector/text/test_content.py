"""Files without text lines are reported and not sent. Files with a UTF-16 mark are read as
UTF-16."""

import gzip
import io
import lzma
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from collector.read.heads import HeadReport, report_head
from collector.text.content import no_lines
from collector.text.encodings import Encoding
from tests.unit.collector.world import World

LINE = '192.0.2.7 - - [07/Sep/2024:15:58:36 +0000] "GET /u HTTP/1.1" 200 612 "-" "M"'
LINES = (LINE + "\n") * 5


def tar(format_: int = tarfile.USTAR_FORMAT) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=format_) as archive:
        info = tarfile.TarInfo("access.log")
        info.size = len(LINES)
        archive.addfile(info, io.BytesIO(LINES.encode()))
    return out.getvalue()


def old_tar() -> bytes:
    """Return a tar archive whose header is from before POSIX, without the word `ustar`."""
    header = bytearray(tar()[:512])
    header[257:265] = bytes(8)
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    return bytes(header) + tar()[512:]


def zipped() -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("access.log", LINES)
    return out.getvalue()


WITHOUT_LINES: dict[str, tuple[bytes, str]] = {
    "a.zip": (zipped(), "zip archive"),
    "empty.zip": (b"PK\x05\x06" + bytes(18), "zip archive"),
    "zip.log": (zipped(), "zip archive"),
    "a.zip.gz": (gzip.compress(zipped(), mtime=0), "zip archive"),
    "a.tar": (tar(), "tar archive"),
    "gnu.tar": (tar(tarfile.GNU_FORMAT), "tar archive"),
    "pax.tar": (tar(tarfile.PAX_FORMAT), "tar archive"),
    "old.tar": (old_tar(), "tar archive"),
    "a.tar.gz": (gzip.compress(tar(), mtime=0), "tar archive"),
    "a.tgz": (gzip.compress(tar(), mtime=0), "tar archive"),
    "a.tar.xz": (lzma.compress(tar()), "tar archive"),
    "a.log.gz.gz": (gzip.compress(gzip.compress(LINES.encode(), mtime=0)), "compressed again"),
    "a.7z": (b"7z\xbc\xaf\x27\x1c\0\4" + LINES.encode(), "7z archive"),
    "a.rpm": (b"\xed\xab\xee\xdb\3\0\0\0" + LINES.encode(), "rpm package"),
    "a.deb": (
        b"!<arch>\ndebian-binary   0           0     0     100644  4         `\n2.0\n",
        "deb",
    ),
    "a.lz4": (b"\x04\x22\x4d\x18\x64\x40\xa7" + LINES.encode(), "lz4 file"),
    "a.Z": (b"\x1f\x9d\x90" + LINES.encode(), "compress"),
    "program": (b"\x7fELF\2\1\1\0" + LINES.encode(), "ELF program"),
    "a.png": (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\n" * 3, "PNG picture"),
    "a.db": (b"SQLite format 3\0\x10\0\1\1" + LINES.encode(), "SQLite database"),
    "a.journal": (b"LPKSHHRH\0\0\0\0\n" + LINES.encode(), "systemd journal"),
    "utf32le.log": (b"\xff\xfe\0\0" + LINES.encode("utf-32-le"), "text in UTF-32"),
    "utf32be.log": (b"\0\0\xfe\xff" + LINES.encode("utf-32-be"), "text in UTF-32"),
    "le.log": (LINES.encode("utf-16-le"), "utf-16-le"),
    "be.log": (LINES.encode("utf-16-be"), "utf-16-be"),
}


def errors(world: World) -> list[str]:
    return [one.error for one in world.registry.generations.values() if one.error]


@pytest.mark.parametrize("name", WITHOUT_LINES)
def test_a_file_without_lines_is_named_and_not_counted(tmp_path: Path, name: str) -> None:
    data, word = WITHOUT_LINES[name]
    world = World(tmp_path, ["**"])
    world.path(name).write_bytes(data)
    world.look_and_wait(5_000)
    assert world.lines == []
    (error,) = errors(world)
    assert word in error
    world.down()
    world.up()
    world.look_and_wait(5_000)
    assert world.lines == []
    assert errors(world) == [error]


@pytest.mark.parametrize("name", ["a.zip", "a.tar", "a.tar.gz", "utf32le.log"])
def test_it_is_known_too_when_it_grows_byte_by_byte(tmp_path: Path, name: str) -> None:
    data, word = WITHOUT_LINES[name]
    world = World(tmp_path, ["**"])
    for start in range(0, len(data), max(1, len(data) // 40)):
        world.append(name, data[start : start + max(1, len(data) // 40)])
        world.look_and_wait(5_000)
    assert world.lines == []
    assert word in errors(world)[0]


@pytest.mark.parametrize("name", WITHOUT_LINES)
def test_the_check_names_it_before_anything_is_read(tmp_path: Path, name: str) -> None:
    data, word = WITHOUT_LINES[name]
    world = World(tmp_path, ["**"])
    world.path(name).write_bytes(data)
    world.feeder.reader.judge(world.walker.scan(), world.now_ms)
    (generation,) = world.registry.generations.values()
    report = report_head(generation)
    assert report is not None and report.problem is not None
    assert word in report.problem


@pytest.mark.parametrize(
    ("data", "content"),
    [
        (LINES.encode(), "utf-8"),
        (LINES.encode("utf-16"), "utf-16-le"),
        (gzip.compress(LINES.encode("utf-16"), mtime=0), "utf-16-le, gzip"),
        (b"", "utf-8"),
    ],
)
def test_the_check_tells_the_kind_of_text(tmp_path: Path, data: bytes, content: str) -> None:
    world = World(tmp_path, ["**"])
    world.path("a").write_bytes(data)
    world.feeder.reader.judge(world.walker.scan(), world.now_ms)
    (generation,) = world.registry.generations.values()
    assert report_head(generation) == HeadReport(content)


@pytest.mark.parametrize(
    ("data", "keys", "words"),
    [
        (b'{"a":1}\0{"a":2}\0', {}, "set `line_end: nul`"),
        (b'{"a":1}\0{"a":2}\0', {"line_end": "nul"}, None),
        (b'{"Records":[]}', {}, "set `flush_after`"),
        (b'{"Records":[]}', {"flush_after": "5s"}, None),
        (gzip.compress(b'{"Records":[]}', mtime=0), {}, "set `flush_after`"),
        ("x".encode("utf-16"), {}, "set `flush_after`"),
        ("\u0a01".encode("utf-16"), {"encoding": "utf-16"}, "set `flush_after`"),
        (b"x\n", {}, None),
    ],
)
def test_the_check_tells_what_a_file_without_line_ends_waits_for(
    tmp_path: Path, data: bytes, keys: dict[str, str], words: str | None
) -> None:
    world = World(tmp_path, ["**"], **keys)
    world.path("a").write_bytes(data)
    world.feeder.reader.judge(world.walker.scan(), world.now_ms)
    (generation,) = world.registry.generations.values()
    report = report_head(generation)
    assert report is not None
    assert report.problem is None if words is None else words in str(report.problem)


def test_nothing_of_it_is_sent_when_a_one_shot_run_ends(tmp_path: Path) -> None:
    world = World(tmp_path, ["**"])
    world.path("a.zip").write_bytes(zipped())
    world.look_and_wait(5_000)
    for generation in world.registry.generations.values():
        world.feeder.finish(generation, world.now_ms)
    world.commit()
    assert world.lines == []


def test_a_file_that_becomes_text_is_read(tmp_path: Path) -> None:
    world = World(tmp_path, ["**"])
    world.path("a.log").write_bytes(zipped())
    world.look_and_wait(5_000)
    assert errors(world)
    world.path("a.log").write_text(LINES)
    world.look_and_wait(5_000)
    assert errors(world) == []
    assert world.lines == [LINE.encode()] * 5


@pytest.mark.parametrize("order", ["utf-16-le", "utf-16-be"])
@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_utf_16_is_read_by_its_mark_without_a_setting(
    tmp_path: Path, order: str, pack: Callable[[bytes], bytes]
) -> None:
    world = World(tmp_path, ["**"])
    data = ("\ufeff" + LINES.replace("\n", "\r\n")).encode(order)
    world.path("a.log").write_bytes(pack(data))
    world.look()
    assert world.lines == [LINE.encode()] * 5
    world.down()
    world.up()
    world.look()
    assert len(world.lines) == 5


@pytest.mark.parametrize("order", ["utf-16-le", "utf-16-be"])
def test_a_mark_that_comes_byte_by_byte_is_seen(tmp_path: Path, order: str) -> None:
    world = World(tmp_path, ["**"])
    data = ("\ufeff" + LINES).encode(order)
    for byte in data[:6]:
        world.append("a.log", bytes([byte]))
        world.look()
    world.append("a.log", data[6:])
    world.look()
    assert world.lines == [LINE.encode()] * 5


@pytest.mark.parametrize(
    "head",
    [
        b"BZh is how this line begins\n",
        b"PK is not a zip\n",
        b"070701 12:00:00 [Note] mysqld: ready\n",
        b"MZ and ORC and PAR1 are words\n",
        b"\n\r\r\n",
        b"\0\0\0\0\0\0\0\0\0\0line\n",
        b"a\0b\0c\0",
        b"",
        LINES.encode(),
    ],
)
def test_text_is_never_refused(head: bytes) -> None:
    assert no_lines(head, Encoding()) is None


@pytest.mark.parametrize("text", ["悦病", "№", "ÿØÿ"])
def test_letters_of_other_encodings_are_no_signature(text: str) -> None:
    for name in ("gbk", "cp1251", "latin-1"):
        try:
            head = text.encode(name)
        except UnicodeEncodeError:
            continue
        assert no_lines(head, Encoding(name)) is None


def test_a_gz_that_is_text_and_a_gzip_without_an_ending_are_read(tmp_path: Path) -> None:
    world = World(tmp_path, ["**"])
    world.path("text.gz").write_text("no archive\n")
    world.path("backup").write_bytes(gzip.compress(b"an archive\n", mtime=0))
    world.look()
    assert sorted(world.lines) == [b"an archive", b"no archive"]
