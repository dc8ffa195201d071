"""CRC-32C (Castagnoli), the checksum of record batches, from a C library.

Floor: wire. Pure. Takes any buffer, writable memoryviews included, without copying it.
"""

from collections.abc import Callable

from crc32c import crc32c as _crc32c

crc32c: Callable[..., int] = _crc32c
"""`crc32c(data)` is the checksum of `data`; a second argument is that of what came before it."""
