"""The key, headers and fields of the records of a file.

This module is pure: the caller passes the host name.
"""

from collector.config.headers import filled_in, on_host
from collector.config.input_section import InputSection
from collector.identity.generation import Generation
from collector.text.encode import Header, header_octets, record_overhead_max
from collector.text.fields import Fields, fields_of
from protocol.collector_report import HOST_HEADER

UNFINISHED_HEADERS: tuple[Header, ...] = ((b"millrace.unfinished", b"1"),)


class Addresses:
    """Gives the records of this host their keys, headers and fields.

    `name` is the value of the header HOST_HEADER. If it is None, records do not have the header.
    """

    def __init__(self, host: str, name: str | None = None):
        self._host = host
        self._name = name
        self._own = () if name is None else ((HOST_HEADER.encode(), name.encode()),)

    def key_of(self, generation: Generation) -> bytes | None:
        """Return the key that the input's configuration gives to the records of a file."""
        kind = generation.section.key
        if kind == "none":
            return None
        return self._host.encode() if kind == "host" else file_key(generation)

    def partition_key_of(self, generation: Generation) -> bytes:
        """Return the key that chooses the partition of a file.

        It is the key of its records, or else the file's path. The path of a collector with a name
        begins with the name here, because many hosts have files of the same path. Otherwise the
        lines of all hosts would go to one partition.
        """
        if generation.section.key == "host":
            return self._host.encode()
        path = file_key(generation)
        return path if self._name is None else self._name.encode() + b"/" + path

    def headers_of(self, section: InputSection) -> tuple[Header, ...]:
        """Return the headers of the records of an input."""
        return self._own + filled_in(section.headers, self._host) if section.headers else self._own

    def fields_of(self, section: InputSection) -> Fields | None:
        """Return the fields to add to the lines of an input; None if there are none."""
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
    """Return a file's path as a record key.

    Consumers read keys as text, so bytes that are not UTF-8 are written as escapes. Otherwise names
    that differ only in such bytes would look the same.
    """
    name = generation.record_key.encode(errors="surrogateescape")
    return name.decode(errors="backslashreplace").encode()
