"""Under which key the lines of a file go, and with which headers and fields.

Floor: above `generation`. Pure: the machine's name is given.
"""

from collector.config.headers import filled_in, on_host
from collector.config.settings import InputSection
from collector.identity.generation import Generation
from collector.text.encode import Header, header_octets, record_overhead_max
from collector.text.fields import Fields, fields_of

UNFINISHED_HEADERS: tuple[Header, ...] = ((b"millrace.unfinished", b"1"),)


class Addresses:
    """The addresses that records have on the machine of this name."""

    def __init__(self, host: str):
        self._host = host

    def key_of(self, generation: Generation) -> bytes | None:
        """The key of a generation's records, as its input wants it."""
        kind = generation.section.key
        if kind == "none":
            return None
        return self._host.encode() if kind == "host" else file_key(generation)

    def headers_of(self, section: InputSection) -> tuple[Header, ...]:
        """The headers of an input's records."""
        return filled_in(section.headers, self._host) if section.headers else ()

    def fields_of(self, section: InputSection) -> Fields | None:
        """The fields that are put into an input's lines; None where there are none."""
        if not section.fields:
            return None
        return fields_of(
            {name: on_host(value, self._host) for name, value in section.fields.items()}
        )

    def overhead_max(self, generation: Generation) -> int:
        """The most bytes that a generation's record takes beside its line as it is in the file."""
        fields = self.fields_of(generation.section)
        headers = self.headers_of(generation.section) + UNFINISHED_HEADERS
        beside = record_overhead_max(self.key_of(generation)) + len(header_octets(headers))
        return beside + (0 if fields is None else fields.bytes_max)


def file_key(generation: Generation) -> bytes:
    """The path a generation's records are keyed by; a keyless file still has one partition.

    Readers take keys for text, so bytes of a name that are no UTF-8 are written as `\\xNN`: else
    all that differ only in them would look alike.
    """
    name = generation.record_key.encode(errors="surrogateescape")
    return name.decode(errors="backslashreplace").encode()
