"""Recognise files that hold no lines by their first bytes.

This module is pure. The table has only signatures with which no log line begins, so a text file is
never refused. Of a compressed file, the first bytes of its content are compared.
"""

from dataclasses import dataclass

from collector.config.encoding_names import UTF_8, UTF_16
from collector.text.decompressors import compression_of
from collector.text.encodings import NEWLINE, Encoding, byte_order, marked_encoding

HEAD_BYTES = 512
"""The bytes of a file's start that are compared: a tar header, which is the longest signature."""
_UTF_32_MARKS = (b"\xff\xfe\0\0", b"\0\0\xfe\xff")
_UNMARKED_BYTES = (8, 64)
"""The least and the most first bytes that are examined for UTF-16 without a byte order mark."""
_TEXT = frozenset((9, NEWLINE, 13, *range(32, 127)))

_UNPACK = "unpack it and leave the archive out with `exclude`"
_LEAVE_OUT = "leave it out with `exclude`"
_DECOMPRESS = "compress it with gzip, zstd, bzip2 or xz, or decompress it"

_SIGNATURES: tuple[tuple[bytes, str, str], ...] = (
    (b"PK\x03\x04", "zip archive", _UNPACK),
    (b"PK\x05\x06", "zip archive", _UNPACK),
    (b"PK\x07\x08", "zip archive", _UNPACK),
    (b"7z\xbc\xaf\x27\x1c", "7z archive", _UNPACK),
    (b"Rar!\x1a\x07", "rar archive", _UNPACK),
    (b"\xed\xab\xee\xdb", "rpm package", _UNPACK),
    (b"!<arch>\n", "ar archive or deb package", _UNPACK),
    (b"\x04\x22\x4d\x18", "lz4 file", _DECOMPRESS),
    (b"\xff\x06\x00\x00sNaPpY", "snappy file", _DECOMPRESS),
    (b"\x1f\x9d", "file of compress (.Z)", _DECOMPRESS),
    (b"\x1f\xa0", "file of compress (.Z)", _DECOMPRESS),
    (b"LZIP\x01", "lzip file", _DECOMPRESS),
    (b"\x89LZO\0\r\n\x1a\n", "lzop file", _DECOMPRESS),
    (b"\x5d\0\0\x80\0", "lzma file", _DECOMPRESS),
    (b"LPKSHHRH", "systemd journal", "export it with `journalctl -o json`"),
    (b"ElfFile\0", "Windows event log", "export its events as text"),
    (b"SQLite format 3\0", "SQLite database", _LEAVE_OUT),
    (b"\xfebin", "MySQL binary log", "print it with `mysqlbinlog`"),
    (b"\x7fELF", "ELF program", _LEAVE_OUT),
    (b"MZ\x90\0", "Windows program", _LEAVE_OUT),
    (b"\xca\xfe\xba\xbe", "Java class", _LEAVE_OUT),
    (b"\x89PNG\r\n\x1a\n", "PNG picture", _LEAVE_OUT),
    (b"\xff\xd8\xff", "JPEG picture", _LEAVE_OUT),
    (b"GIF87a", "GIF picture", _LEAVE_OUT),
    (b"GIF89a", "GIF picture", _LEAVE_OUT),
    (b"%PDF-", "PDF document", _LEAVE_OUT),
    (b"PAR1\x15", "Parquet file", _LEAVE_OUT),
    (b"Obj\x01", "Avro file", _LEAVE_OUT),
    (b"\xd4\xc3\xb2\xa1", "packet capture", _LEAVE_OUT),
    (b"\xa1\xb2\xc3\xd4", "packet capture", _LEAVE_OUT),
)

# The bytes of a tar header that hold its checksum. See pax(1), "ustar Interchange Format".
_TAR_CHECKSUM = slice(148, 156)


@dataclass(frozen=True, slots=True)
class NoLines:
    """A kind of file that holds no lines, and what the user can do with such a file."""

    name: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.name}, which is not read: {self.remedy}"


def no_lines(head: bytes, encoding: Encoding, *, is_unpacked: bool = False) -> NoLines | None:
    """Return what kind of file without lines this is, by its first bytes; None for other files.

    `encoding` is the encoding in which the file would be read. If `is_unpacked`, the bytes were
    already decompressed, so a compressed file inside them is refused.
    """
    for signature, name, remedy in _SIGNATURES:
        # A signature with a first byte above 127 is valid only in UTF-8, because in other encodings
        # such a byte can begin a letter.
        if head.startswith(signature) and (signature[0] < 128 or encoding.name == UTF_8):
            return NoLines(name, remedy)
    if _is_tar(head):
        return NoLines("tar archive", _UNPACK)
    if is_unpacked and (inner := compression_of(head)) is not None:
        return NoLines(f"{inner.name} file that was compressed again", "decompress it once")
    if encoding.name == UTF_8:
        return _other_text(head, encoding)
    return None


def content_name(head: bytes, encoding: str) -> str:
    """Return the name of the encoding of a file whose first bytes are `head`."""
    if encoding == UTF_16:
        return byte_order(head)
    return marked_encoding(head) or encoding if encoding == UTF_8 else encoding


def _other_text(head: bytes, encoding: Encoding) -> NoLines | None:
    if head.startswith(_UTF_32_MARKS):
        return NoLines("text in UTF-32", "convert it with `iconv -f UTF-32 -t UTF-8`")
    if not encoding.ends_with_newline:
        return None
    least, most = _UNMARKED_BYTES
    sample = head[: min(len(head), most) & ~1]
    if len(sample) < least:
        return None
    for high, order in ((1, "utf-16-le"), (0, "utf-16-be")):
        if not any(sample[high::2]) and _TEXT.issuperset(sample[1 - high :: 2]):
            return NoLines(
                "text in UTF-16 without a byte order mark", f"set `encoding: {order}` for its input"
            )
    return None


def _is_tar(head: bytes) -> bool:
    """Tell whether the bytes are a tar header, by the checksum that all versions of tar write."""
    if len(head) < HEAD_BYTES or not head[0]:
        return False
    try:
        stated = int(head[_TAR_CHECKSUM].strip(b" \0"), 8)
    except ValueError:
        return False
    blank = bytes(_TAR_CHECKSUM.stop - _TAR_CHECKSUM.start).replace(b"\0", b" ")
    filled = head[: _TAR_CHECKSUM.start] + blank + head[_TAR_CHECKSUM.stop : HEAD_BYTES]
    return sum(filled) == stated
