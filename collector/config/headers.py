"""The headers that an input's records carry: which names and values there may be.

Floor: ground of the room. Pure. Values are text that the configuration gives, with `{host}` in
place of the machine's name. The limits keep all headers of a record well below what is left for
them beside the longest line (`limits.RECORD_ROOM_BYTES`).
"""

import re
from collections.abc import Mapping

HEADERS_MAX = 16
NAME_BYTES_MAX = 100
VALUE_BYTES_MAX = 1_000
OWN_PREFIX = "millrace."
"""Begins the names of the headers that the collector gives by itself."""

HOST = "{host}"
_PLACEHOLDER = re.compile(r"\{[a-z_]+\}")


def check_headers(headers: Mapping[str, str]) -> None:
    """Raise ValueError with what was found and what was expected."""
    if len(headers) > HEADERS_MAX:
        raise ValueError(f"found {len(headers)} headers, expected at most {HEADERS_MAX}")
    for name, value in headers.items():
        if not 0 < len(_octets(name)) <= NAME_BYTES_MAX:
            raise ValueError(f"found {name!r}, expected a name of 1 to {NAME_BYTES_MAX} bytes")
        if name.startswith(OWN_PREFIX):
            raise ValueError(
                f"found {name!r}, expected a name that does not begin with {OWN_PREFIX!r}: these"
                " are the collector's own"
            )
        if len(_octets(value)) > VALUE_BYTES_MAX:
            raise ValueError(
                f"found a value of {len(_octets(value))} bytes for {name!r}, expected at most"
                f" {VALUE_BYTES_MAX}"
            )
        unknown = [found for found in _PLACEHOLDER.findall(value) if found != HOST]
        if unknown:
            raise ValueError(f"found {unknown[0]} for {name!r}, expected {HOST} or no placeholder")


def filled_in(headers: Mapping[str, str], host: str) -> tuple[tuple[bytes, bytes], ...]:
    """The headers as records carry them on this machine."""
    return tuple(
        (_octets(name), _octets(value.replace(HOST, host))) for name, value in headers.items()
    )


def _octets(text: str) -> bytes:
    # A lone surrogate, which JSON and YAML can spell, is no text: it stands as it was written.
    return text.encode(errors="backslashreplace")
