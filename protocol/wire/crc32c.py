"""CRC-32C (Castagnoli), the checksum of record batches, from a C library.

It accepts any buffer, including writable memoryviews, without a copy.
"""

from collections.abc import Callable

from crc32c import crc32c as _crc32c

crc32c: Callable[..., int] = _crc32c
"""`crc32c(data)` returns the checksum of `data`. A second argument continues an
earlier checksum.
"""
