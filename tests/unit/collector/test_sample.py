"""The sample of a file has the same records that a collector would send."""

import gzip
import io
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from collector.config.input_section import InputSection
from collector.config.settings import TopicSettings
from collector.sample import FileSample, UnreadableFile, first_records, sample_file
from tests.unit.collector.world import World

SLOW = (
    b"# Time: 2024-09-07T15:58:36.123456Z\n# User@Host: app[app]\nSET timestamp=1;\nSELECT 1;\n"
    b"# Time: 2024-09-07T15:58:40.123456Z\n# User@Host: app[app]\nSELECT 2\n FROM t;\n"
)
LINES = "".join(f"192.0.2.7 GET /é{number}\r\n" for number in range(5))


def sample(path: Path, most: int = 1_000, **keys: Any) -> FileSample:
    section = InputSection.model_validate({"paths": [f"{path.parent}/**"], "topic": "t", **keys})
    return sample_file(str(path), section, [], str(path.parent), most)


CASES: dict[str, tuple[bytes, dict[str, Any], int]] = {
    "events": (SLOW, {"multiline": {"start": "^# Time:"}}, 2),
    "utf-16": (LINES.encode("utf-16"), {"encoding": "utf-16"}, 5),
    "utf-16 by its mark": (LINES.encode("utf-16"), {}, 5),
    "gzip": (gzip.compress(b"a\nb\n"), {}, 2),
    "gzip of events": (gzip.compress(SLOW), {"multiline": {"start": "^# Time:"}}, 2),
    "a CR before each newline": (LINES.encode(), {}, 5),
    "CRs that are kept": (LINES.encode(), {"line_end": "keep"}, 5),
    "NUL": (b'{"a":1}\0{"a":2}\0', {"line_end": "nul"}, 2),
    "no line end": (b"a\nb", {"flush_after": "5s"}, 2),
    "an open line": (b"a\nb", {}, 1),
    "an overlong line": (b"x" * 5000 + b"\nshort\n", {"max_line_bytes": 1024}, 6),
    "an overlong line cut": (
        b"x" * 5000 + b"\nshort\n",
        {"max_line_bytes": 1024, "on_overlong": "cut"},
        2,
    ),
    "fields": (b'{"a":1}\n', {"fields": {"env": "x"}}, 1),
    "the end only": (b"a\nb\n", {"start": "end"}, 2),
    "invalid bytes": (b"caf\xe9\nx\n", {"on_invalid": "replace"}, 2),
    "an empty file": (b"", {}, 0),
}


@pytest.mark.parametrize("case", CASES)
def test_it_has_the_records_that_the_collector_sends(tmp_path: Path, case: str) -> None:
    data, keys, count = CASES[case]
    world = World(tmp_path, ["**"], **(keys | {"start": "beginning"}))
    path = world.path("a")
    path.write_bytes(data)
    found = sample(path, **keys)
    world.look_and_wait(10_000)
    assert found.records == tuple(record for _, record in world.records)
    assert found.count == len(found.records) == count


def test_only_the_last_records_are_kept_and_all_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"".join(b"%d\n" % number for number in range(300_000)))
    found = sample(path, 10)
    assert found.records == tuple(b"%d" % number for number in range(299_990, 300_000))
    assert found.count == 300_000


def test_what_is_not_among_the_records_is_told(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"\xff\nx\nopen")
    found = sample(path, on_invalid="dead_letter")
    assert (found.records, found.dead_letters, found.open_bytes) == ((b"x",), 1, 4)


def test_the_largest_batch_of_its_topic_holds_for_it(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"x" * 100_000 + b"\n")
    section = InputSection(paths=(f"{tmp_path}/**",), topic="t")
    topics = [TopicSettings(name="t", settings={"max.message.bytes": "65536"})]
    assert sample_file(str(path), section, topics, str(tmp_path), 10).count == 2
    assert sample_file(str(path), section, [], str(tmp_path), 10).count == 1


def tar(data: bytes) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        info = tarfile.TarInfo("a")
        info.size = len(data)
        archive.addfile(info, io.BytesIO(data))
    return out.getvalue()


@pytest.mark.parametrize(
    ("pack", "word"),
    [
        (tar, "tar archive"),
        (lambda data: gzip.compress(data)[:-9], "not complete yet"),
        (lambda data: b"PK\x03\x04" + data, "zip archive"),
    ],
)
def test_a_file_that_is_not_read_is_named(
    tmp_path: Path, pack: Callable[[bytes], bytes], word: str
) -> None:
    path = tmp_path / "a"
    path.write_bytes(pack(SLOW))
    with pytest.raises(UnreadableFile, match=word):
        sample(path)


@pytest.mark.parametrize(
    ("most", "most_bytes", "count", "goes_on"),
    [
        (10, 1 << 20, 5, False),
        (5, 1 << 20, 5, False),
        (4, 1 << 20, 4, True),
        # The record that reaches the byte limit is the last one.
        (10, 25, 2, True),
    ],
)
def test_the_first_records_of_a_file(
    tmp_path: Path, most: int, most_bytes: int, count: int, goes_on: bool
) -> None:
    path = tmp_path / "a.gz"
    path.write_bytes(gzip.compress(LINES.encode()))
    section = InputSection(paths=(f"{tmp_path}/**",), topic="t")
    records, is_part = first_records(str(path), section, str(tmp_path), most, most_bytes)
    assert records == [line.encode() for line in LINES.splitlines()[:count]]
    assert is_part == goes_on


def test_a_file_that_is_not_read_has_no_first_records(
    tmp_path: Path,
) -> None:
    section = InputSection(paths=(f"{tmp_path}/**",), topic="t")
    (tmp_path / "a.zip").write_bytes(b"PK\x03\x04rest\n")
    with pytest.raises(UnreadableFile, match="zip archive"):
        first_records(str(tmp_path / "a.zip"), section, str(tmp_path), 10, 1 << 20)
    (tmp_path / "b.gz").write_bytes(gzip.compress(b"x\n" * 99, mtime=0)[:-9])
    with pytest.raises(UnreadableFile, match="not complete yet"):
        first_records(str(tmp_path / "b.gz"), section, str(tmp_path), 10, 1 << 20)
