"""Reads a log's first lines as the collector would read them.

The collector's own code opens the file, so archives, byte order marks and encodings are treated in
the same way. If a file has no byte order mark, its encoding is detected, provided that its bytes
fit only one.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from appliance.detect.detect import detect
from appliance.detect.detection import Detection
from appliance.detect.noise import NOT_A_LOG
from collector.config.encoding_names import UTF_8, UTF_16_ORDERS
from collector.config.input_section import InputSection
from collector.sample import UnreadableFile, first_records
from collector.text.decompressors import compression_of
from stream.config.format_files import Format

LINES_MAX = 10_000
BYTES_MAX = 32 << 20
OPEN_LINE = (
    "the last line has no line end, so the collector waits for the rest of it; `flush_after: 5s` in"
    " the collector's input counts it after five seconds"
)
_FLUSH_MS = 100
_HEAD_BYTES = 16
_WESTERN = "windows-1252"
_HIGH = re.compile(rb"[\x80-\xff]+")
_LONE_SHARE = 0.8


def detect_file(path: Path, formats: Mapping[str, Format], encoding: str | None) -> Detection:
    """Detect the format of a file by its first lines.

    Raises OSError for a file that cannot be opened, and ValueError for an unknown encoding.
    """
    path = Path.cwd() / path
    with path.open("rb"):
        pass
    try:
        lines, found, is_part = _lines(path, encoding)
    except UnreadableFile as error:
        reason = str(error).removeprefix(f"{path}: ")
        return Detection(str(path.name), 0, reason=f"the file is not read: {reason}",
                         remedy=NOT_A_LOG)  # fmt: skip
    collector: dict[str, object] = {} if found in (None, UTF_8) else {"encoding": found}
    detection = replace(detect(lines, path.name, formats, collector), is_part=is_part)
    if detection.format is not None and not is_part and _is_open(path):
        return replace(detection, notes=(*detection.notes, OPEN_LINE))
    return detection


def _is_open(path: Path) -> bool:
    """Return whether an uncompressed file has no line end at its end, so that its last line can be
    incomplete."""
    with path.open("rb") as file:
        head = file.read(_HEAD_BYTES)
        file.seek(max(0, file.seek(0, 2) - 2))
        end = file.read()
    return compression_of(head) is None and b"\n" not in end


def _lines(path: Path, encoding: str | None) -> tuple[list[str], str | None, bool]:
    """Return the first lines, the encoding to configure, and whether the file has more lines."""
    try:
        records, is_part = _records(path, encoding or UTF_8)
    except UnreadableFile:
        found = _order_of(path) if encoding is None else None
        if found is None:
            raise
        encoding = found
        records, is_part = _records(path, encoding)
    if encoding is None and _is_western(records):
        encoding = _WESTERN
        records, is_part = _records(path, encoding)
    return [record.decode(errors="replace") for record in records], encoding, is_part


def _records(path: Path, encoding: str) -> tuple[list[bytes], bool]:
    section = InputSection(
        paths=(str(path),), topic="logs.detect", encoding=encoding, flush_after=_FLUSH_MS
    )
    return first_records(str(path), section, str(path.parent), LINES_MAX, BYTES_MAX)


def _order_of(path: Path) -> str | None:
    """Return the encoding of a UTF-16 file without a byte order mark; None for other files."""
    for order in UTF_16_ORDERS:
        try:
            records, _ = _records(path, order)
        except UnreadableFile:
            continue
        text = b"\n".join(records[:100]).decode(errors="replace")
        if text and sum(one.isascii() for one in text) > len(text) // 2:
            return order
    return None


def _is_western(records: Sequence[bytes]) -> bool:
    """Return whether lines that are not UTF-8 have single non-ASCII letters, as in western
    languages.

    In encodings with two bytes for a letter, and in languages with another script, several such
    bytes follow each other.
    """
    wrong = [record for record in records if not _is_utf_8(record)]
    runs = [run for record in wrong for run in _HIGH.findall(record)]
    if not runs or any(b"\0" in record for record in wrong):
        return False
    return sum(len(run) == 1 for run in runs) >= _LONE_SHARE * len(runs) and _is_text(wrong)


def _is_text(records: Sequence[bytes]) -> bool:
    characters = sum(map(len, records))
    high = sum(len(run) for record in records for run in _HIGH.findall(record))
    controls = sum(byte < 32 and byte not in (9, 13, 27) for one in records for byte in one)
    return high < 0.2 * characters and controls == 0


def _is_utf_8(record: bytes) -> bool:
    try:
        record.decode()
    except UnicodeDecodeError:
        return False
    return True
