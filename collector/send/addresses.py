"""The key, headers and fields of a file's records.

Room: above `generation`. Pure: the caller gives the machine's name.
"""

from collector.config.headers import filled_in, on_host
from collector.config.input_section import InputSection
from collector.identity.generation import Generation
from collector.text.encode import Header, header_octets, record_overhead_max
from collector.text.fields import Fields, fields_of

UNFINISHED_HEADERS: tuple[Header, ...] = ((b"millrace.unfinished", b"1"),)


class Addresses:
    """Gives records their keys, headers and fields on the machine of this name."""

    def __init__(self, host: str):
        self._host = host

    def key_of(self, generation: Generation) -> bytes | None:
        """Return the key of a generation's records as its input configures it."""
        kind = generation.section.key
        if kind == "none":
            return None
        return self._host.encode() if kind == "host" else file_key(generation)

    def headers_of(self, section: InputSection) -> tuple[Header, ...]:
        """Return the headers of an input's records."""
        return filled_in(section.headers, self._host) if section.headers else ()

    def fields_of(self, section: InputSection) -> Fields | None:
        """Return the fields added to an input's lines; None if there are none."""
        if not section.fields:
            return None
        return fields_of(
            {name: on_host(value, self._host) for name, value in section.fields.items()}
        )

    def overhead_max(self, generation: Generation) -> int:
        """Return the most bytes that a record takes in addition to its line in the file."""
        fields = self.fields_of(generation.section)
        headers = self.headers_of(generation.section) + UNFINISHED_HEADERS
        beside = record_overhead_max(self.key_of(generation)) + len(header_octets(headers))
        return beside + (0 if fields is None else fields.bytes_max)


def file_key(generation: Generation) -> bytes:
    """Return a generation's path as a key. A file without keys is partitioned by it too.

    Consumers read keys as text, so bytes that are not UTF-8 are written as `\\xNN`. Otherwise
    names that differ only in such bytes would look the same.
    """
    name = generation.record_key.encode(errors="surrogateescape")
    return name.decode(errors="backslashreplace").encode()
