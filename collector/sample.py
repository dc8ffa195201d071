"""Show the records that a collector would make of one file, without a broker.

It reads the file with the same registry, reader and tailer as the collector. A simulated clock
skips the times when the collector would wait.
"""

import socket
from collections import deque
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from collector.agent import BATCH_HEADER_BYTES
from collector.config.input_section import LINE_BYTES_MIN, InputSection
from collector.config.limits import MAX_MESSAGE_BYTES, wanted_limits
from collector.config.settings import BATCH_OVERHEAD_BYTES, CollectorSection, TopicSettings
from collector.identity.files import FolderScan
from collector.identity.generation import Generation
from collector.identity.handles import Handles, Unreadable
from collector.identity.registry import Registry
from collector.identity.statx import Statx
from collector.read.reader import Reader
from collector.send.addresses import Addresses
from collector.status import file_error
from collector.text.lines import Block


class UnreadableFile(Exception):
    """The error for a file of which the collector would make no record. Its text says why."""


@dataclass(frozen=True, slots=True)
class FileSample:
    """The last records of a file, in order, and the number of all its records.

    `dead_letters` counts the lines that go to the dead letters. `open_bytes` is the length of an
    unfinished last line, for whose end the collector would wait.
    """

    key: str
    topic: str
    records: tuple[bytes, ...]
    count: int
    dead_letters: int
    open_bytes: int


def sample_file(
    path: str, section: InputSection, topics: Collection[TopicSettings], home: str, most: int
) -> FileSample:
    """Read a file to its end as a file of this input, and keep its last `most` records.

    Raises UnreadableFile.
    """
    reader, generation = _opened(path, section, topics, home)
    records: deque[bytes] = deque(maxlen=most)
    count = dead_letters = 0
    try:
        for block in _blocks(reader, generation):
            if block.is_dead_letter:
                dead_letters += block.count
            else:
                count += block.count
                records.extend(_last_records(block, most))
    except Unreadable as error:
        raise UnreadableFile(f"{path}: {error}") from error
    finally:
        reader.handles.close_all()
    if not count and not dead_letters and (why := file_error(generation)) is not None:
        raise UnreadableFile(f"{path}: {why}")
    open_bytes = max(0, generation.size - generation.position)
    return FileSample(
        generation.record_key, generation.topic, tuple(records), count, dead_letters, open_bytes
    )


def first_records(
    path: str, section: InputSection, home: str, most: int, most_bytes: int
) -> tuple[list[bytes], bool]:
    """Read the first records of a file as a file of this input, but not the rest of the file.

    Return the records, and whether the file continues after them. At most `most_bytes` of records
    are kept. Raises UnreadableFile.
    """
    reader, generation = _opened(path, section, (), home)
    records: list[bytes] = []
    size = 0
    try:
        for block in _blocks(reader, generation):
            if block.is_dead_letter:
                continue
            for record in _last_records(block, block.count):
                if len(records) == most or size >= most_bytes:
                    return records, True
                records.append(record)
                size += len(record)
    except Unreadable as error:
        raise UnreadableFile(f"{path}: {error}") from error
    finally:
        reader.handles.close_all()
    if not records and (why := file_error(generation)) is not None:
        raise UnreadableFile(f"{path}: {why}")
    return records, False


def _opened(
    path: str, section: InputSection, topics: Collection[TopicSettings], home: str
) -> tuple[Reader, Generation]:
    # The sample needs the lines that the file already holds.
    section = section.model_copy(update={"start": "beginning"})
    addresses = Addresses(socket.gethostname())
    limit_bytes = _batch_bytes(section, topics) - BATCH_OVERHEAD_BYTES - BATCH_HEADER_BYTES

    def line_limit(generation: Generation) -> int:
        return max(LINE_BYTES_MIN, limit_bytes - addresses.overhead_max(generation))

    registry = Registry((section,), home, lambda: "sample")
    reader = Reader(registry, Handles(1), line_limit, addresses.fields_of)
    try:
        seen = Statx().seen(path, 0)
    except OSError as error:
        raise UnreadableFile(f"{path} cannot be read: {error.strerror}") from error
    if seen is None:
        raise UnreadableFile(f"{path} is not a regular file")
    reader.judge(FolderScan((seen,), (), True), 0)
    (generation,) = registry.generations.values()
    return reader, generation


def _batch_bytes(section: InputSection, topics: Collection[TopicSettings]) -> int:
    """Return the size of the topic's largest batch according to the configuration."""
    for topic in topics:
        if topic.name == section.topic and MAX_MESSAGE_BYTES in topic.settings:
            return int(topic.settings[MAX_MESSAGE_BYTES])
    wanted = wanted_limits(CollectorSection(inputs=(section,)), (section.topic,))
    return max(wanted.values())


def _blocks(reader: Reader, generation: Generation) -> Iterator[Block]:
    """Yield all blocks of a file, and skip the times when the collector would wait."""
    now_ms = 0
    while True:
        turn = reader.turn(generation, now_ms)
        for block in turn.blocks:
            generation.hand_out(block)
            yield block
        if turn.wake_at_ms is not None and not turn.has_more:
            now_ms = max(now_ms + 1, turn.wake_at_ms)
        elif not turn.has_more:
            return


def _last_records(block: Block, most: int) -> Iterator[bytes]:
    rest = block if block.count <= most else block.split_at(block.count - most)[1]
    begin = 0
    for newline in rest.newlines.tolist():
        record = bytes(rest.data[begin:newline])
        yield record.removesuffix(b"\r") if rest.cut_cr else record
        begin = newline + 1
