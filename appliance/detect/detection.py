"""The result of a detection, as data.

This module is pure.
"""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ShownColumn:
    """A column of a format: its name, its type, and its meaning if the format describes it."""

    name: str
    type: str
    about: str = ""


@dataclass(frozen=True, slots=True)
class NotParsed:
    """A line that the format cannot parse, and its number, counted from 1."""

    line: int
    text: str


@dataclass(frozen=True, slots=True)
class Multiline:
    """The events of a log that probably have several lines.

    `rule` is the proposed `multiline` rule of the collector; None if no rule is proposed. `places`
    has the numbers of the first and the last line of the first such events. `events` is the number
    of all such events.
    """

    rule: object
    events: int
    places: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Proposal:
    """The proposed additions to the configuration: `collector` and `stream` each have the keys of
    one input.
    """

    name: str
    collector: Mapping[str, object]
    stream: Mapping[str, object]
    metrics: tuple[Mapping[str, object], ...]


@dataclass(frozen=True, slots=True)
class Detection:
    """The format of some lines, or the reason why no format fits.

    `format` is None if no format fits. In this case `reason` says why, and `remedy` what to do.
    `share` is the share of lines that parse, without headers, comments and empty lines. `runner_up`
    is the second-best format, with its share.
    """

    name: str
    lines: int
    format: str | None = None
    title: str = ""
    share: float = 0.0
    columns: tuple[ShownColumn, ...] = ()
    rows: tuple[Mapping[str, str | None], ...] = ()
    not_parsed: tuple[NotParsed, ...] = ()
    not_parsed_count: int = 0
    multiline: Multiline | None = None
    runner_up: tuple[str, float] | None = None
    proposal: Proposal | None = None
    notes: tuple[str, ...] = ()
    reason: str = ""
    remedy: str = ""
    is_part: bool = False
    """True if the file has more lines than the lines that were read."""

    def as_json(self) -> dict[str, object]:
        """Return the detection as plain JSON values."""
        proposal = self.proposal
        multiline = self.multiline
        return {
            "name": self.name,
            "lines": self.lines,
            "is_part": self.is_part,
            "format": self.format,
            "title": self.title or None,
            "share": round(self.share, 4),
            "columns": [
                {"name": one.name, "type": one.type, "about": one.about} for one in self.columns
            ],
            "rows": [dict(row) for row in self.rows],
            "not_parsed": {
                "count": self.not_parsed_count,
                "lines": [{"line": one.line, "text": one.text} for one in self.not_parsed],
            },
            "multiline": None
            if multiline is None
            else {
                "rule": multiline.rule,
                "events": multiline.events,
                "places": [list(place) for place in multiline.places],
            },
            "runner_up": None
            if self.runner_up is None
            else {"format": self.runner_up[0], "share": round(self.runner_up[1], 4)},
            "input": None
            if proposal is None
            else {
                "name": proposal.name,
                "collector": dict(proposal.collector),
                "stream": dict(proposal.stream),
            },
            "metrics": [] if proposal is None else [dict(one) for one in proposal.metrics],
            "notes": list(self.notes),
            "reason": self.reason or None,
            "remedy": self.remedy or None,
        }
