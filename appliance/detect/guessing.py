"""Derives a regular expression from the lines of an unknown log that have a time.

This module is pure. The pattern is built from left to right. A field that nearly all lines have at
the same place becomes a group: the time, a level, an address, a text in brackets, `key=value`. At
the first place where the lines differ, the message begins, which is the last group. So the pattern
never assumes more than the lines show.
"""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from appliance.detect.moments import SPELLINGS, Spelling, order_of
from appliance.detect.seen import SeenColumn
from stream.config.groups import python_pattern
from stream.config.headers import column_name

AGREE = 0.95
"""The least share of the lines that must match a group at the same place."""
PIECES_MAX = 8
BEFORE_TIME_MAX = 60
LINES_MIN = 2

LEVELS = (
    r"(?:TRACE|DEBUG|INFO|INFORMATION|NOTICE|WARN|WARNING|ERROR|ERR|SEVERE|FATAL|CRITICAL|CRIT"
    r"|INF|WRN|DBG|VRB|FTL|TRC|Note|ALERT|EMERG|VERBOSE|FINE|FINER|FINEST|CONFIG|PANIC"
    r"|trace|debug|info|information|notice|warn|warning|error|err|severe|fatal|critical|crit"
    r"|alert|emerg|verbose|panic"
    r"|Trace|Debug|Info|Information|Notice|Warn|Warning|Error|Severe|Fatal|Critical|Verbose)"
)
_ADDRESS = r"\d{1,3}\.\d{1,3}\.\d{1,3}\.\d{1,3}"
_SEPARATORS = re.compile(r"[\s\-:|,;\[\]()<>\"]*")
_CLOSERS = {"[": "]", "(": ")", "<": ">", '"': '"'}
_BLANKS = re.compile(r"\s+")
_WORD = re.compile(r"[A-Za-z][A-Za-z_]{0,30}[ =:]{1,2}(?=\d)")
_FIRST_WORD = re.compile(r"[A-Za-z][A-Za-z_-]*(?= )")
_KEY = re.compile(r"([A-Za-z_][\w.-]*)=")
_DIGITS = r"\d+(?:\.\d+)?"
# Each entry has the name of a group, the pattern that nearly all lines must match, the simpler
# pattern for the group, and the pattern of the unit after it.
_NUMBERS = (
    ("ms", rf"{_DIGITS} ?ms\b", "[0-9.]+", " ?ms"),
    ("seconds", rf"{_DIGITS} ?s(?:ec(?:onds)?)?\b", "[0-9.]+", " ?s(?:ec(?:onds)?)?"),
    ("number", rf"{_DIGITS}(?![\w.:])", "[0-9.]+", ""),
)
_NAMED_TOKENS = (
    ("level", rf"{LEVELS}(?![A-Za-z0-9_])", "[A-Za-z]+", ""),
    ("client", rf"{_ADDRESS}(?![\d.])", "[0-9.]+", ""),
    *_NUMBERS,
    ("logger", r"[A-Za-z_][\w$]*[.:/][\w$.:/-]*[\w$](?=:? )", r"[\w$.:/-]*[\w$]", ""),
    ("logger", r"[A-Za-z_][\w$.-]*(?=: )", r"[\w$.-]+", ""),
)
FEW_WORDS = 15
"""The largest number of different values that a word before the message may have so that it becomes
a column."""
_FEW_LINES = 100


@dataclass(frozen=True, slots=True)
class Guess:
    """A proposed pattern, the layout of its time if the values fit only one layout, and the rule
    that joins lines into events."""

    pattern: str
    layouts: tuple[str, ...]
    start: str
    is_ambiguous: bool
    types: dict[str, str]


@dataclass(slots=True)
class _Pattern:
    """An unfinished pattern. `places` has, for each line, the position after the text that the
    pattern has matched so far."""

    lines: list[str]
    places: list[int]
    text: str = "^"
    names: list[str] = field(default_factory=list)

    def name(self, wanted: str) -> str:
        name = wanted
        number = 2
        while name in self.names:
            name, number = f"{wanted}{number}", number + 1
        self.names.append(name)
        return name

    def advance(self, pattern: str) -> bool:
        """Move the positions past `pattern` if nearly all lines match it here.

        The lines that do not match are dropped. Return whether nearly all lines match.
        """
        compiled = re.compile(pattern, re.ASCII)
        ends = [
            None if (match := compiled.match(line, place)) is None else match.end()
            for line, place in zip(self.lines, self.places, strict=True)
        ]
        if sum(end is not None for end in ends) < AGREE * len(ends):
            return False
        kept = [at for at, end in enumerate(ends) if end is not None]
        self.places = [end for end in ends if end is not None]
        self.lines = [self.lines[at] for at in kept]
        return True


def spelling_of(lines: Sequence[str]) -> Spelling | None:
    """Return the spelling of the times that most lines have near their beginning."""
    best: tuple[int, Spelling] | None = None
    for spelling in SPELLINGS:
        bare = re.compile(rf"(?<![\w.])(?:{spelling.pattern})(?![\w])", re.ASCII)
        is_number = "1970" in spelling.name
        most = 2 if is_number else BEFORE_TIME_MAX
        count = sum(
            match is not None and match.start() <= most
            for match in (bare.search(line, 0, most + 40) for line in lines)
        )
        if is_number and count < 0.9 * len(lines):
            continue
        if count and (best is None or count > best[0]):
            best = count, spelling
    return None if best is None else best[1]


def guess_of(lines: Sequence[str]) -> Guess | None:
    """Return a pattern for lines with a time; None if too few lines have a time at the same
    place.
    """
    spelling = spelling_of(lines[:2_000])
    if spelling is None:
        return None
    stamp = re.compile(rf"(?<![\w.])(?:{spelling.pattern})(?!\w)", re.ASCII)
    found = [
        (line, match)
        for line in lines
        if (match := stamp.search(line, 0, BEFORE_TIME_MAX + 40)) is not None
        and match.start() <= BEFORE_TIME_MAX
    ]
    if len(found) < min(LINES_MIN, len(lines)):
        return None
    making = _Pattern([line for line, _ in found], [0] * len(found))
    if not _to_the_time(making, spelling):
        return None
    start = making.text.replace(f"(?<ts>{spelling.pattern})", spelling.pattern)
    start = re.sub(r"\(\?<\w+>", "(?:", start)
    for _ in range(PIECES_MAX):
        if not _separator(making):
            break
        if not (_piece(making) or _piece_behind_word(making)):
            if _few_words(making):
                _separator(making)
            break
    making.text += "(?<message>.*)$"
    texts = [match[0] for _, match in found]
    layouts = order_of(spelling, texts)
    if spelling.orders and not layouts:
        return None
    is_ambiguous = len(layouts) > 1
    types = _types(making.text, making.lines)
    return Guess(
        f"(?s){making.text}", () if is_ambiguous else layouts, start, is_ambiguous, types
    )  # fmt: skip


def _types(pattern: str, lines: Sequence[str]) -> dict[str, str]:
    compiled = re.compile(python_pattern(pattern), re.ASCII)
    columns: dict[str, SeenColumn] = {}
    for line in lines:
        match = compiled.match(line)
        if match is not None:
            for name, text in match.groupdict().items():
                columns.setdefault(name, SeenColumn()).add(text)
    return {name: column.type for name, column in columns.items() if name != "ts"}


def _to_the_time(making: _Pattern, spelling: Spelling) -> bool:
    """Add the groups before the time, and the time itself.

    Return False if too few lines have the time at the same place.
    """
    for _ in range(PIECES_MAX):
        if not _separator(making):
            return False
        if making.advance(rf"(?:{spelling.pattern})(?!\w)"):
            making.names.append("ts")
            making.text += f"(?<ts>{spelling.pattern})"
            return True
        if not (_piece(making) or _word(making)):
            return False
    return False


def _separator(making: _Pattern) -> bool:
    """Add the separator between two groups. Return False if the lines have different texts here."""
    runs = [
        "" if (match := _SEPARATORS.match(line, place)) is None else match[0]
        for line, place in zip(making.lines, making.places, strict=True)
    ]
    shapes = Counter(_BLANKS.sub(" ", run) for run in runs)
    shape, count = shapes.most_common(1)[0]
    if count < AGREE * len(runs):
        # The lines differ here, so the message begins. If all lines have blanks here, these belong
        # to the separator.
        if making.advance(r"\s+"):
            making.text += r"\s+"
        return False
    has_one_blank = all(run == shape for run in runs if _BLANKS.sub(" ", run) == shape)
    pattern = _literal(shape)
    if not has_one_blank:
        pattern = pattern.replace(" ", r"\s+")
    if not making.advance(pattern):
        return False
    making.text += pattern
    return True


def _literal(text: str) -> str:
    """Return a text as a readable pattern that matches exactly this text, in Java and in Python."""
    escaped = "".join(f"\\{one}" if one in "\\[](){}.*+?^$|" else one for one in text)
    return escaped.replace("\t", "\\t")


def _piece(making: _Pattern) -> bool:
    """Extend the pattern by one group if nearly all lines match the same kind of field here. Return
    whether it was extended."""
    opener = making.text[-1:] if making.text[-2:-1] == "\\" or making.text[-1:] in '<"' else ""
    closer = _CLOSERS.get(opener)
    if closer is not None:
        inner = rf"[^{re.escape(closer)}]*" if closer != "]" else r"[^\]]*"
        if making.advance(rf"{LEVELS} *(?={re.escape(closer)})"):
            making.text += f"(?<{making.name('level')}>[A-Za-z]+) *"
            return True
        if making.advance(rf"{inner}(?={re.escape(closer)})"):
            making.text += f"(?<{making.name('field')}>{inner})"
            return True
        return False
    for name, pattern, simple, unit in _NAMED_TOKENS:
        if making.advance(pattern):
            making.text += f"(?<{making.name(name)}>{simple}){unit}"
            return True
    return _pair(making)


def _piece_behind_word(making: _Pattern) -> bool:
    """Extend the pattern by a word that nearly all lines have here, and by a group for the number
    after it, as in `took 12ms`.

    Return whether it was extended.
    """
    words = Counter(
        match[0]
        for line, place in zip(making.lines, making.places, strict=True)
        if (match := _WORD.match(line, place)) is not None
    )
    if not words:
        return False
    word = words.most_common(1)[0][0]
    before = replace(making, names=list(making.names))
    if not making.advance(re.escape(word)):
        return False
    making.text += _literal(word)
    base = column_name(word)
    for name, pattern, simple, unit in _NUMBERS:
        if making.advance(pattern):
            full = base if name == "number" else f"{base}_{name}"
            making.text += f"(?<{making.name(full)}>{simple}){unit}"
            return True
    making.lines, making.places, making.text = before.lines, before.places, before.text
    return False


def _few_words(making: _Pattern) -> bool:
    """Add the first word of the message as a group if it has only a few different values.

    Return whether the group was added.
    """
    words = Counter(
        match[0]
        for line, place in zip(making.lines, making.places, strict=True)
        if (match := _FIRST_WORD.match(line, place)) is not None
    )
    lines = len(making.lines)
    is_few = 1 < len(words) <= FEW_WORDS and lines >= 20 * len(words)
    if lines < _FEW_LINES or not is_few or not making.advance(_FIRST_WORD.pattern):
        return False
    making.text += f"(?<{making.name('word')}>[A-Za-z][A-Za-z_-]*)"
    return True


def _pair(making: _Pattern) -> bool:
    """Add a group for the value of `key=value` if nearly all lines have the same key here. Return
    whether it was added."""
    first = _KEY.match(making.lines[0], making.places[0])
    if first is None:
        return False
    name = column_name(first[1])
    if not name or name in ("time", "file", "line", "message", "ts"):
        return False
    key = f"{_literal(first[1])}="
    if not making.advance(rf'{key}(?:"[^"]*"|[^\s"]*)'):
        return False
    making.text += rf'{key}"?(?<{making.name(name)}>[^\s"]*)"?'
    return True


def _word(making: _Pattern) -> bool:
    """Add a group for one word before the time. Return whether it was added."""
    if not making.advance(r"[^\s\[\]()<>\"|,;]+"):
        return False
    making.text += f'(?<{making.name("field")}>[^\\s\\[\\]()<>"|,;]+)'
    return True
