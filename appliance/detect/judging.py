"""Computes how many lines each format parses, and chooses the format that fits best.

This module is pure. A format is tried on a sample first, and on all lines if it parses enough of
the sample. Among formats that parse nearly the same share of the lines, the most specific one wins.
A format with its own pattern or columns comes before `combined`, and `combined` before `json` and
`syslog`, because these two also parse lines of many other formats.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from appliance.detect.events import LineEvent, Rule, joined, likely_presets
from stream.config.format_files import Format
from stream.config.recognition import Verdict, plain_text

SAMPLE_LINES = 900
_STRETCH = 225
CLAIM_MIN = 0.5
"""The least share of lines that a format must parse so that it is named."""
SPECIFIC_MIN = 0.4
RUNNER_UP_MIN = 0.2
NEARLY = 0.1
"""The share of lines by which a less specific format must be better to win."""
_SIGNS_MIN = 0.1
EVENT_LINES = 40
"""The number of lines after the first line of an event that are compared with the format.

Other text, up to a whole file, can follow the first line, so not all lines are compared.
"""

CHARACTERS_MAX = 8_192
"""The largest number of characters of a line that patterns examine. The time of some patterns grows
with the square of this number."""
_SHORT = 2_048
_FEW = 15
_LINEAR = ("json", "csv", "w3c")

# The presets of the collector that join the partial lines of container logs. The formats do not
# name these presets.
PARTIAL_RULES: Mapping[str, Rule] = {"cri": "cri", "docker_json": "docker"}

# `syslog` parses any line that begins with an ISO time. Only lines that match this pattern are
# certainly in that format.
_SURE_SYSLOG = re.compile(
    r"^(?:\d+ )?(?:<\d{1,3}>|(?:[^\s:]+: )?[*.]?[A-Z][a-z]{2} [ \d]?\d (?:\d{4} )?\d\d:\d\d:\d\d"
    r"|\d{4}-\d\d-\d\dT\S+ (?!(?:TRACE|DEBUG|INFO|WARN|WARNING|ERROR|FATAL|NOTICE|CRITICAL)\b)"
    r"[^\s\[\]:]+ [^\s\[\]:]+(?:\[\d+\])?: )",
    re.IGNORECASE | re.ASCII,
)
_LOGFMT_FIRST = re.compile(r'^\s*[A-Za-z_@][\w.@-]*=(?:"|[^\s=,;(]+(?:\s|$)|\s)')
_WIDE = ("json", "logfmt", "syslog", "common")
# These formats parse any line, so they are not tried alone. The module `tables` recognises tables.
_NOT_ALONE = ("csv", "tsv", "raw")


@dataclass(frozen=True, slots=True)
class Fit:
    """The result of trying one format: its rule for events, its verdict on each event, and the
    share of events that it parses."""

    format: Format
    rule: Rule | None
    events: tuple[LineEvent, ...]
    verdicts: tuple[Verdict, ...]
    share: float
    evidence: float
    """The share of parsed events. Of a long event only the first lines are counted."""

    @property
    def specificity(self) -> tuple[int, int]:
        """The rank of the format. A format that parses only few kinds of lines has a high rank."""
        return specificity_of(self.format)

    @property
    def parsed(self) -> list[LineEvent]:
        """The events that the format parses."""
        return [event for event, is_one in zip(self.events, self.verdicts, strict=True) if is_one]

    @property
    def failed(self) -> list[LineEvent]:
        """The events that the format does not parse."""
        pairs = zip(self.events, self.verdicts, strict=True)
        return [event for event, is_one in pairs if is_one is False]


def specificity_of(given: Format) -> tuple[int, int]:
    """Return the rank of a format. The fewer kinds of lines it parses, the higher the rank."""
    if given.reader in ("regex", "w3c") or (given.reader == "csv" and given.header):
        return 3, len(given.columns)
    if given.reader == "json" and given.signs is not None:
        return 3, len(given.columns)
    return (1, 0) if given.reader in _WIDE else (2, 0)


def fit(given: Format, lines: Sequence[str], rule: Rule | None) -> Fit:
    """Join lines into events by a rule, and try one format on all events."""
    events = joined(lines, rule)
    if given.reader not in _LINEAR:
        events = [
            replace(event, text=event.text[:CHARACTERS_MAX])
            if len(event.text) > CHARACTERS_MAX
            else event
            for event in events
        ]
    verdicts = _verdicts(given, [event.text for event in events])
    good = sum(event.size for event, one in zip(events, verdicts, strict=True) if one)
    judged = sum(event.size for event, one in zip(events, verdicts, strict=True) if one is not None)
    first = sum(
        min(event.size, EVENT_LINES) for event, one in zip(events, verdicts, strict=True) if one
    )
    share, evidence = (part / judged if judged else 0.0 for part in (good, first))
    return Fit(given, rule, tuple(events), tuple(verdicts), share, evidence)


def _verdicts(given: Format, texts: Sequence[str]) -> list[Verdict]:
    verdicts = given.verdicts(texts)
    if given.reader == "regex" and given.signs is not None:
        verdicts = _with_signs(given, texts, verdicts)
    sure = {"syslog": _SURE_SYSLOG, "logfmt": _LOGFMT_FIRST}.get(given.name)
    if sure is None:
        return verdicts
    return [
        one and sure.match(plain_text(text)) is not None
        for one, text in zip(verdicts, texts, strict=True)
    ]


def _with_signs(given: Format, texts: Sequence[str], verdicts: list[Verdict]) -> list[Verdict]:
    """If enough lines have the typical texts (signs) of the format, accept the lines without these
    texts too.

    Example: lines of an access log can begin with a list of addresses. A list with a single address
    does not look like a list.
    """
    judged = [one for one in verdicts if one is not None]
    if not judged or sum(judged) < _SIGNS_MIN * len(judged):
        return verdicts
    return given.model_copy(update={"signs": None}).verdicts(texts)


def candidates(formats: Mapping[str, Format], lines: Sequence[str]) -> list[Fit]:
    """Return the formats that parse at least some of the lines. The best format comes first."""
    sample = sample_of(lines)
    probe = _probe(sample)
    presets: list[Rule | None] = [*likely_presets(sample)]
    fits = []
    for name, given in formats.items():
        if name in _NOT_ALONE or (given.reader == "csv" and not given.header):
            continue
        rules = list(dict.fromkeys(map(_hashable, [given.multiline, None, *presets])))
        if not any(fit(given, probe, _rule(one)).parsed for one in rules):
            continue
        tried = [fit(given, sample, _rule(one)) for one in rules]
        best = max(tried, key=lambda one: one.evidence)
        if best.evidence < RUNNER_UP_MIN:
            continue
        # Keep the format's own rule for events, unless another rule makes clearly more lines parse.
        chosen = tried[0] if tried[0].evidence >= best.evidence - 0.02 else best
        fits.append(chosen if len(sample) == len(lines) else fit(given, lines, chosen.rule))
    return sorted(fits, key=lambda one: (one.evidence, one.specificity), reverse=True)


def _hashable(rule: Rule | None) -> object:
    return tuple(rule.items()) if isinstance(rule, Mapping) else rule


def _rule(hashable: object) -> Rule | None:
    if isinstance(hashable, tuple):
        return dict(hashable)
    return hashable if isinstance(hashable, str) else None


def _probe(sample: Sequence[str]) -> list[str]:
    """Return a few short lines, with which a format that does not fit can be excluded quickly."""
    width = _STRETCH // 15
    stretches = range(0, len(sample), max(width, len(sample) // 8))
    lines = [line for at in stretches for line in sample[at : at + width]]
    short = [line for line in lines if len(line) <= _SHORT]
    return short if len(short) >= len(lines) // 4 else lines[::_FEW]


def sample_of(lines: Sequence[str]) -> list[str]:
    """Return four ranges of consecutive lines as a sample. Most events in such ranges are
    complete."""
    if len(lines) <= SAMPLE_LINES:
        return list(lines)
    step = (len(lines) - _STRETCH) // 3
    return [line for at in range(4) for line in lines[at * step : at * step + _STRETCH]]


def winner(fits: Sequence[Fit]) -> Fit | None:
    """Return the format that fits best; None if no format parses enough of the lines."""
    claimed = [
        one
        for one in fits
        if one.evidence >= (CLAIM_MIN if one.specificity[0] < 2 else SPECIFIC_MIN)
    ]
    if not claimed:
        return None
    most = max(one.evidence for one in claimed)
    near = [one for one in claimed if one.evidence >= most - NEARLY]
    return max(near, key=lambda one: (one.specificity[0], one.evidence, one.specificity[1]))
