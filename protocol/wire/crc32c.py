"""CRC-32C (Castagnoli), the checksum of record batches, from a C library.

Floor: wire. Pure. Takes any buffer, writable memoryviews included, without copying it.
"""

from crc32c import crc32c as _crc32c

from protocol.wire.primitives import Buffer


def crc32c(data: Buffer, start: int = 0) -> int:
    """The checksum of `data`; `start` is the checksum of what came before it."""
    return _crc32c(data, start)
