"""Finds the topic of a file if a part of its path names the topic.

This module is pure. The topic follows from the name under which a file was first seen, as the
record key does. So a rotation moves no line to another topic. Code that gives a generation another
first name must look up its topic again (`Registry._route`). A template makes at most `max_topics`
topics. The topics of all known files are included in this number, even of files that have ended. A
file without a topic is not read, and keeps its position until it gets one.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from collector.config.input_section import InputSection, check_input_topic
from collector.config.topics import TopicTemplate
from collector.identity.discovery import Pattern, plan


class Route(NamedTuple):
    """The topic of a file, or the reason why it has no topic."""

    topic: str
    refusal: str = ""


class _Way(NamedTuple):
    """An input whose topic is a template, with the patterns of its globs."""

    template: TopicTemplate
    patterns: tuple[Pattern, ...]


class Routes:
    """Assigns topics to the files of the inputs."""

    def __init__(self, inputs: Sequence[InputSection], home: str):
        self.edition = 0
        """A number that grows whenever a file without a topic could get one."""
        self._home = home
        self._in_use: set[str] = set()
        self.change(inputs)

    def change(self, inputs: Sequence[InputSection]) -> None:
        """Replace the inputs."""
        # kept alive, because `id()` of an input is a key and must not be used again
        self._inputs = tuple(inputs)
        self._fixed = {entry.topic for entry in inputs if entry.template is None}
        patterns = plan(inputs, self._home)
        self._ways = {
            id(entry): _Way(template, tuple(one for one in patterns if one.input_index == index))
            for index, entry in enumerate(inputs)
            if (template := entry.template) is not None
        }
        self.hold(self._in_use)

    def hold(self, topics: Iterable[str]) -> None:
        """Replace the set of topics that known files use."""
        self.edition += 1
        self._in_use = {topic for topic in topics if topic}
        self._made: dict[TopicTemplate, set[str]] = {
            way.template: {topic for topic in self._in_use if self._counts(way.template, topic)}
            for way in self._ways.values()
        }

    def of(self, section: InputSection, *paths: str) -> Route:
        """Return the topic of a file. It follows from the first of `paths` that matches a glob of
        the input.
        """
        way = self._ways.get(id(section))
        if way is None:
            is_gone = section.topic not in self._fixed and section.template is not None
            return (
                Route("", "no input of the configuration reads it")
                if is_gone
                else Route(section.topic)
            )
        matches = (pattern.wildcards(path) for path in paths for pattern in way.patterns)
        words = next((found for found in matches if found is not None), None)
        if words is None:
            return Route(
                "",
                "no path of the input matches the file, so the wildcards of the topic"
                f" {section.topic!r} have no value",
            )
        for place in way.template.places:
            if not words[place - 1]:
                return Route(
                    "",
                    f"the wildcard {{{place}}} of the topic {section.topic!r} matches no character"
                    " of the file's path, so the topic has no name",
                )
        topic = way.template.filled(words)
        try:
            check_input_topic(topic)
        except ValueError as error:
            return Route("", f"{section.topic!r} gives no valid topic: {error}")
        made = self._made[way.template]
        if topic not in made and self._counts(way.template, topic):
            if len(made) >= section.max_topics:
                return Route(
                    "",
                    f"its topic {topic!r} is not created, because the input with topic"
                    f" {section.topic!r} already has {section.max_topics} topics (max_topics):"
                    " raise max_topics",
                )
            self._in_use.add(topic)
            made.add(topic)
        return Route(topic)

    def _counts(self, template: TopicTemplate, topic: str) -> bool:
        return topic not in self._fixed and template.makes(topic)
