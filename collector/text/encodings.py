"""Encodings of files: find line ends in source bytes, and convert each line to UTF-8.

This module is pure. A file is split into lines in its own encoding, and positions count its own
bytes. Each line is converted alone. UTF-8 is not examined if `on_invalid` is `keep`.
"""

import codecs
import functools
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from collector.config.encoding_names import UTF_8, UTF_16_ORDERS, OnInvalid, growth_max, is_raw

NEWLINE = 10
CARRIAGE_RETURN = 13

NUL = 0

_BYTE_ORDER_MARKS = {b"\xff\xfe": "utf-16-le", b"\xfe\xff": "utf-16-be"}
_UTF_32_LE_MARK = b"\xff\xfe\0\0"
_PARTS_OF_MARKS = (b"\xff", b"\xfe", b"\xff\xfe", b"\xff\xfe\0")
MARK_BYTES_MAX = 4
UTF_16_MARK_BYTES = 2

Positions = NDArray[np.int64]


def byte_order(head: bytes) -> str:
    """Return the UTF-16 byte order that a file's first two bytes name; little-endian by default."""
    return _BYTE_ORDER_MARKS.get(head[:UTF_16_MARK_BYTES], "utf-16-le")


def marked_encoding(head: bytes) -> str | None:
    """Return the UTF-16 encoding that a file's byte order mark names; None without such a mark."""
    if head.startswith(_UTF_32_LE_MARK):
        return None
    return _BYTE_ORDER_MARKS.get(head[:UTF_16_MARK_BYTES])


def may_become_mark(head: bytes) -> bool:
    """Tell whether `head` is the beginning of a byte order mark, so that more bytes are needed."""
    return head in _PARTS_OF_MARKS


@dataclass(frozen=True, slots=True)
class Encoding:
    """One encoding by its canonical name, which for UTF-16 includes the byte order.

    `line_end` is the character that ends a line: a newline or NUL.
    """

    name: str = UTF_8
    on_invalid: OnInvalid = OnInvalid.KEEP
    line_end: int = NEWLINE

    is_raw: bool = field(init=False)
    """True if the value of a record has exactly the bytes of the source."""
    unit_bytes: int = field(init=False)
    """The number of bytes of a code unit. Lines begin and end between two code units."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "is_raw", is_raw(self.name, self.on_invalid))
        object.__setattr__(self, "unit_bytes", 2 if self.name in UTF_16_ORDERS else 1)

    @property
    def growth_max(self) -> int:
        """The most bytes of a record that one byte of the source can become."""
        return growth_max(self.name, self.on_invalid)

    @property
    def mark(self) -> bytes:
        """The byte order mark in this encoding, which is not part of the first line; can be
        empty."""
        return _mark(self.name)

    @property
    def ends_with_newline(self) -> bool:
        """True if a newline ends each line, so that no line contains a newline."""
        return self.line_end == NEWLINE

    def newlines(self, data: memoryview) -> Positions:
        """Return the indices of the line ends; `data` begins and ends between two code units."""
        if self.name not in UTF_16_ORDERS:
            return np.flatnonzero(np.frombuffer(data, dtype=np.uint8) == self.line_end)
        units = np.frombuffer(data, dtype=UTF_16_ORDERS[self.name])
        return np.flatnonzero(units == self.line_end) * 2

    def units(self, data: memoryview) -> NDArray[np.unsignedinteger[Any]]:
        """Return the whole code units of `data`, in no particular byte order."""
        whole = data[: len(data) - len(data) % self.unit_bytes]
        return np.frombuffer(whole, dtype=np.uint8 if self.unit_bytes == 1 else np.uint16)

    def text_begins(self, data: memoryview, begins: Positions) -> Positions:
        """Return for each line start in `begins` the index of the line's first byte that is not
        NUL.

        The caller makes sure that such a byte exists.
        """
        units, unit_begins = self.units(data), begins // self.unit_bytes
        if not self.ends_with_newline or units[unit_begins].all():
            return begins
        text = np.flatnonzero(units)
        found: Positions = text[np.searchsorted(text, unit_begins)] * self.unit_bytes
        return found

    def leading_nul_bytes(self, data: memoryview) -> int:
        """Return the number of NUL bytes at the start of the data; 0 if NULs end lines."""
        if not self.ends_with_newline:
            return 0
        return _zeros(self.units(data)) * self.unit_bytes

    def trailing_nul_bytes(self, data: memoryview) -> int:
        """Return the number of NUL bytes at the end of the data; 0 if NULs end lines."""
        if len(data) % self.unit_bytes or not self.ends_with_newline:
            return 0
        return _zeros(self.units(data)[::-1]) * self.unit_bytes

    def ends_in_cr(self, data: memoryview) -> bool:
        """Tell whether the last code unit is a CR."""
        mark = _carriage_return(self.name)
        return bytes(data[-len(mark) :]) == mark

    def whole_bytes(self, data: memoryview) -> int:
        """Return how many of the first bytes are whole characters; at least one code unit.

        UTF-8 that is not examined can be cut at any byte.
        """
        if self.is_raw:
            return len(data)
        decoder = codecs.getincrementaldecoder(self.name)("replace")
        decoder.decode(bytes(data))
        pending = decoder.getstate()[0]
        return (len(data) - len(pending)) or len(data)

    def text(self, data: memoryview) -> bytes:
        """Return the bytes as UTF-8; raises UnicodeDecodeError if some are not valid."""
        source = bytes(data)
        text = source.decode(self.name)
        return source if self.name == UTF_8 else text.encode()

    def despite_faults(self, data: memoryview) -> bytes | None:
        """Return the bytes as UTF-8 with the invalid bytes replaced.

        Return None if the line belongs to the dead letters.
        """
        if self.on_invalid is OnInvalid.DEAD_LETTER:
            return None
        errors = "replace" if self.on_invalid is OnInvalid.REPLACE else "backslashreplace"
        return bytes(data).decode(self.name, errors).encode()


def _zeros(units: NDArray[np.unsignedinteger[Any]]) -> int:
    """Return the number of leading zeros."""
    if not len(units) or units[0]:
        return 0
    is_text = units != 0
    return int(is_text.argmax()) if is_text.any() else len(units)


@functools.cache
def _mark(name: str) -> bytes:
    try:
        return "\ufeff".encode(name)
    except UnicodeEncodeError:
        return b""


@functools.cache
def _carriage_return(name: str) -> bytes:
    return "\r".encode(name)
