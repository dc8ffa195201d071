"""The first bytes of files, looked at without reading on.

Floor: above `handles` and `archive`. Touches the disk through a handle of its own.
"""

from dataclasses import dataclass

from collector.config.encoding_names import OnInvalid
from collector.identity.generation import Generation
from collector.identity.handles import Unreadable, Vanished, open_file
from collector.text.archive import CHUNK_BYTES, Inflater
from collector.text.content import HEAD_BYTES, content_name, no_lines
from collector.text.decompressors import compression_of
from collector.text.encodings import NEWLINE, NUL, Encoding


@dataclass(frozen=True, slots=True)
class HeadReport:
    """The kind of content that a file has, and the reason why it is not read, if it is not."""

    content: str
    problem: str | None = None


def report_head(generation: Generation) -> HeadReport | None:
    """Tell what a file holds by its first bytes; None for a file that is gone."""
    section = generation.section
    try:
        handle = open_file(generation.path, generation.file, generation.birth_ns)
    except Vanished:
        return None
    except Unreadable as error:
        return HeadReport("unknown", str(error))
    try:
        head = handle.read(0, CHUNK_BYTES)
    except Unreadable as error:
        return HeadReport("unknown", str(error))
    finally:
        handle.close()
    compression = compression_of(head)
    if compression is not None:
        inflater = Inflater(compression)
        inflater.feed(head)
        head = inflater.inflate()
    line_end = NUL if section.line_end == "nul" else NEWLINE
    encoding = Encoding(section.encoding, OnInvalid(section.on_invalid), line_end)
    found = no_lines(head[:HEAD_BYTES], encoding, is_unpacked=compression is not None)
    name = content_name(head, section.encoding) if found is None else found.name
    content = name if compression is None else f"{name}, {compression.name}"
    return HeadReport(content, None if found is None else str(found))
