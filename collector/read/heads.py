"""Examine the first bytes of files to find out what they contain, without reading further.

The module opens each file with a handle of its own.
"""

from dataclasses import dataclass

from collector.config.encoding_names import OnInvalid
from collector.config.input_section import InputSection
from collector.identity.generation import Generation
from collector.identity.handles import Unreadable, Vanished, open_file
from collector.text.archive import CHUNK_BYTES, Inflater
from collector.text.content import HEAD_BYTES, content_name, no_lines
from collector.text.decompressors import compression_of
from collector.text.encodings import NEWLINE, NUL, Encoding


@dataclass(frozen=True, slots=True)
class HeadReport:
    """The kind of a file's content, and the reason why the file is not read, if there is one."""

    content: str
    problem: str | None = None


def report_head(generation: Generation) -> HeadReport | None:
    """Report the content of a file from its first bytes; None if the file is gone."""
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
    name = content_name(head, section.encoding)
    line_end = NUL if section.line_end == "nul" else NEWLINE
    encoding = Encoding(name, OnInvalid(section.on_invalid), line_end)
    found = no_lines(head[:HEAD_BYTES], encoding, is_unpacked=compression is not None)
    problem = _waiting(head, encoding, section) if found is None else str(found)
    content = name if found is None else found.name
    return HeadReport(content if compression is None else f"{content}, {compression.name}", problem)


def _waiting(head: bytes, encoding: Encoding, section: InputSection) -> str | None:
    """Return why a file without a line end is not sent yet; None if it has a line end."""
    whole = memoryview(head)[: len(head) - len(head) % encoding.unit_bytes]
    if not len(whole) or len(encoding.newlines(whole)):
        return None
    if encoding.is_raw and encoding.ends_with_newline and bytes((NUL,)) in head.strip(b"\0"):
        return "no newline so far, but NULs: set `line_end: nul` if its records end with NUL"
    if section.flush_after is None:
        return "no line end so far, so the line waits: set `flush_after` if none will come"
    return None
