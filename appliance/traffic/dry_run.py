"""Reads a file for a dry run of the stream, and makes the records that the collector would make.

The first input of the collector whose globs match the file is used. If none matches, the file is
read as the input that writes the topic of the stream's input, or else as plain lines.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from appliance.mill.settings import Mill, collector_wish
from collector.config.input_section import InputSection
from collector.config.settings import TopicSettings
from collector.identity.discovery import plan
from collector.identity.routing import Routes
from collector.sample import FileSample, sample_file


class DryRunFault(Exception):
    """Raised when no input fits the file. The text says what was expected."""


def samples_of(
    mill: Mill, path: Path, source: str | None, topic: str | None, most: int
) -> list[tuple[str, FileSample]]:
    """Return the stream's inputs that a file can belong to, each with the file's records for it.

    `source` names an input of the stream, and `topic` the topic of a collector's input. Raises
    DryRunFault and UnreadableFile.
    """
    home = str(mill.home.folder.resolve())
    if _matching(mill.config.collector.inputs, str(path), home) is None:
        # The path can contain a symbolic link, so resolve it before it is compared with the globs
        # of inputs.
        path = path.resolve()
    topics = [TopicSettings.model_validate(one) for one in collector_wish(mill)["topics"]]
    return [
        (name, sample_file(str(path), section, topics, home, most))
        for name, section in _pairs(mill, path, source, topic, home)
    ]


def _pairs(
    mill: Mill, path: Path, source: str | None, topic: str | None, home: str
) -> list[tuple[str, InputSection]]:
    """Return the stream's inputs that fit the file, each with the collector's input that feeds
    it."""
    sources = {name: one.topic for name, one in mill.config.stream.from_.items()}
    inputs = mill.config.collector.inputs
    if not sources:
        raise DryRunFault("found no input, expected one under stream.from")
    if source is not None and source not in sources:
        known = ", ".join(sources)
        raise DryRunFault(f"found input {source!r}, expected one of stream.from: {known}")
    if topic is not None:
        section = _writer_of(inputs, topic)
        if section is None:
            known = ", ".join(dict.fromkeys(entry.topic for entry in inputs))
            raise DryRunFault(f"found topic {topic!r}, expected the topic of an input: {known}")
        return [(source or _reader_of(sources, topic), section)]
    matching = _matching(inputs, str(path), home)
    written = "" if matching is None else Routes(inputs, home).of(matching, str(path)).topic
    if matching is not None and source in (None, *_readers(sources, written)):
        return [(_reader_of(sources, written), matching)]
    names = [source] if source is not None else _of_folders(sources, path)
    return [
        (name, _writer_of(inputs, wanted) or InputSection(paths=(str(path),), topic=wanted))
        for name, wanted in sources.items()
        if name in names
    ]


def _readers(sources: Mapping[str, str], topic: str) -> list[str]:
    return [name for name, read in sources.items() if read == topic]


def _reader_of(sources: Mapping[str, str], topic: str) -> str:
    """Return the stream's input that reads a topic; each topic has at most one."""
    for name in _readers(sources, topic):
        return name
    raise DryRunFault(
        f"no input of stream.from reads the topic {topic!r}, expected one, or --from NAME"
    )


def _of_folders(sources: Mapping[str, str], path: Path) -> list[str]:
    """Return the inputs whose topic ends with the name of a folder of the file's path; if there are
    none, all inputs."""
    folders = {part.lower() for part in path.parts[:-1]}
    fitting = [
        name for name, topic in sources.items() if topic.rsplit(".", 1)[-1].lower() in folders
    ]
    return fitting or list(sources)


def _matching(inputs: Sequence[InputSection], path: str, home: str) -> InputSection | None:
    for pattern in plan(inputs, home):
        if pattern.wildcards(path) is not None:
            return inputs[pattern.input_index]
    return None


def _writer_of(inputs: Sequence[InputSection], topic: str) -> InputSection | None:
    for entry in inputs:
        template = entry.template
        if entry.topic == topic if template is None else template.makes(topic):
            # The file is not in a watched folder, so no glob fills the template of the topic.
            return entry if template is None else entry.model_copy(update={"topic": topic})
    return None
