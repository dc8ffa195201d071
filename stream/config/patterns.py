r"""Finds the literal patterns of an expression, and the operand that each is matched against.

This module is pure. A *literal* pattern is a text that the user wrote. Patterns that an expression
computes from a line or a column are not found here.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from stream.config.expression import Token, TokenKind, tokenize
from stream.config.functions import words
from stream.config.literals import literal_text

_FUNCTIONS = words(
    """
    regexp regexp_count regexp_extract regexp_extract_all regexp_instr regexp_like regexp_replace
    regexp_substr rlike split
    """
)
_OPERATORS = words("like ilike regexp rlike")
_LIKES = words("like ilike")
_BINDS_CLOSER = words("|| + - * / % :: . & | ^ ~ << >>")
_CLOSING = {")": "(", "]": "["}
_NO_OPERANDS = words(
    "and or not when then else case between in is escape as from div like ilike rlike regexp"
)


class PatternKind(StrEnum):
    """The rules of a pattern: Java's regular expressions, or SQL's LIKE."""

    REGEX = "regex"
    LIKE = "like"


@dataclass(frozen=True, slots=True)
class LiteralPattern:
    """A literal pattern in an expression. `position` is the 1-based position of its literal.

    `subject` is the SQL text of the operand that is matched, or None if it cannot be determined.
    `escape` is the escape character of a LIKE pattern.
    """

    kind: PatternKind
    text: str
    position: int
    subject: str | None
    escape: str = "\\"


def literal_patterns(text: str) -> list[LiteralPattern]:
    """Return the literal patterns of an expression, in the order of their positions.

    Raises ExpressionFault if the expression cannot be divided into tokens.
    """
    found = list(_Finder(text).patterns())
    return sorted(found, key=lambda one: one.position)


class _Finder:
    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = list(tokenize(text))

    def patterns(self) -> Iterator[LiteralPattern]:
        for at, token in enumerate(self._tokens):
            if token.kind is not TokenKind.WORD:
                continue
            word = token.text.lower()
            if word in _OPERATORS and self._has_operand_before(at):
                yield from self._of_operator(at, word)
            elif (word in _FUNCTIONS or word in _LIKES) and self._symbol(at + 1) == "(":
                yield from self._of_call(at, word)

    def _of_operator(self, at: int, word: str) -> Iterator[LiteralPattern]:
        subject = self._subject_before(at)
        kind = PatternKind.LIKE if word in _LIKES else PatternKind.REGEX
        after = at + 1
        if self._symbol(after) in ("any", "all", "some"):
            end = self._closing(after + 1)
            for begin, stop in self._arguments(after + 1, end):
                yield from self._literal(begin, stop, kind, subject)
            return
        begin = after
        while self._symbol(begin) == "(":
            begin += 1
        stop = begin
        while self._is_string(stop):
            stop += 1
        if self._symbol(stop) in _BINDS_CLOSER:
            return
        escape = "\\"
        if self._symbol(stop) == "escape" and self._is_string(stop + 1):
            escape = literal_text(self._tokens[stop + 1].text)
        yield from self._literal(begin, stop, kind, subject, escape)

    def _of_call(self, at: int, word: str) -> Iterator[LiteralPattern]:
        end = self._closing(at + 1)
        arguments = list(self._arguments(at + 1, end))
        if len(arguments) < 2:
            return
        kind = PatternKind.LIKE if word in _LIKES else PatternKind.REGEX
        subject = self._source(*arguments[0])
        yield from self._literal(*arguments[1], kind, subject)

    def _literal(
        self, begin: int, stop: int, kind: PatternKind, subject: str | None, escape: str = "\\"
    ) -> Iterator[LiteralPattern]:
        """Yield one pattern if all tokens from `begin` to `stop` are literals, which SQL joins."""
        while self._symbol(begin) == "(" and self._symbol(stop - 1) == ")":
            begin, stop = begin + 1, stop - 1
        tokens = self._tokens[begin:stop]
        if tokens and all(token.kind is TokenKind.STRING for token in tokens):
            text = "".join(literal_text(token.text) for token in tokens)
            yield LiteralPattern(kind, text, tokens[0].start + 1, subject, escape)

    def _arguments(self, opening: int, closing: int) -> Iterator[tuple[int, int]]:
        """Yield the range of tokens of each argument, as (first, end)."""
        begin, depth = opening + 1, 0
        for at in range(opening + 1, closing):
            symbol = self._symbol(at)
            depth += (symbol in _CLOSING.values()) - (symbol in _CLOSING)
            if symbol == "," and depth == 0:
                yield begin, at
                begin = at + 1
        if begin < closing:
            yield begin, closing

    def _closing(self, opening: int) -> int:
        """Return the index of the symbol that closes a list, or the number of tokens."""
        depth = 0
        for at in range(opening, len(self._tokens)):
            symbol = self._symbol(at)
            depth += (symbol in _CLOSING.values()) - (symbol in _CLOSING)
            if depth <= 0:
                return at
        return len(self._tokens)

    def _has_operand_before(self, at: int) -> bool:
        at -= 1
        if at >= 0 and self._symbol(at) in ("not", "!"):
            at -= 1
        return at >= 0 and self._ends_operand(self._tokens[at])

    @staticmethod
    def _ends_operand(token: Token) -> bool:
        if token.kind is TokenKind.WORD:
            return token.text.lower() not in _NO_OPERANDS
        return token.kind is not TokenKind.SYMBOL or token.text in _CLOSING

    def _subject_before(self, at: int) -> str | None:
        """Return the SQL text of the operand before an operator: a column, a literal or a call.

        None if the operand is a larger expression, such as `a || b`.
        """
        stop = at - 1 if self._symbol(at - 1) in ("not", "!") else at
        begin = stop - 1
        while self._symbol(begin) in _CLOSING:
            begin = self._opening(begin) - 1
            before = self._tokens[begin] if begin >= 0 else None
            is_called = before is not None and (
                self._ends_operand(before) and before.kind is not TokenKind.NUMBER
            )
            if not is_called:
                begin += 1
                break
        if begin < 0 or (begin > 0 and self._symbol(begin - 1) in _BINDS_CLOSER):
            return None
        return self._source(begin, stop)

    def _opening(self, closing: int) -> int:
        depth = 0
        for at in range(closing, -1, -1):
            symbol = self._symbol(at)
            depth += (symbol in _CLOSING) - (symbol in _CLOSING.values())
            if depth == 0:
                return at
        return 0

    def _source(self, begin: int, stop: int) -> str:
        last = self._tokens[stop - 1]
        return self._text[self._tokens[begin].start : last.start + len(last.text)]

    def _symbol(self, at: int) -> str:
        """Return the text of a word or symbol in lower case; empty for other tokens."""
        if not 0 <= at < len(self._tokens):
            return ""
        token = self._tokens[at]
        plain = token.kind in (TokenKind.WORD, TokenKind.SYMBOL)
        return token.text.lower() if plain else ""

    def _is_string(self, at: int) -> bool:
        return at < len(self._tokens) and self._tokens[at].kind is TokenKind.STRING


def like_fault(pattern: LiteralPattern) -> tuple[str, str] | None:
    """Return what is wrong with a LIKE pattern, as (found, expected); None if it is valid."""
    place = 0
    while (place := pattern.text.find(pattern.escape, place)) >= 0:
        after = pattern.text[place + 1 : place + 2]
        if after not in ("%", "_", pattern.escape):
            stands = f"before {after!r}" if after else "at the end"
            return (
                f"LIKE pattern {pattern.text!r}, with {pattern.escape} {stands}",
                f"{pattern.escape} only before %, _ and itself: LIKE has no other escapes"
                " (a regular expression is matched by RLIKE)",
            )
        place += 2
    return None


def glob_hint(text: str) -> str:
    """Return a hint with the regular expression for a glob; empty if the text is not a glob."""
    if not text.startswith("*") or len(text) < 2:
        return ""
    rest = "".join("\\" + one if one in ".+()[]{}^$|" else one for one in text[1:])
    regex = rest.replace("*", ".*").replace("?", ".")
    return f": for all that the glob {text} matches, write '{regex}$'"


def attacks(pattern: str, characters: int) -> Iterator[str]:
    """Yield texts of `characters` characters that can make a badly written pattern very slow.

    Each text repeats a character that the pattern matches, partly after the fixed beginning of the
    pattern. It ends with a character that the pattern does not match, so the matcher tries every
    way to divide the repeated characters.
    """
    start = pattern.removeprefix("^")
    head = ""
    for character in start:
        if not (character.isalnum() or character in "/ -_:=\"'<"):
            break
        head += character
    letters = dict.fromkeys(one for one in pattern if one.isalnum() or one in "/ -_:=.,\"'<>;&")
    classes = {"\\d": "1", "\\w": "a", "\\s": " ", ".": "a", "[^": "a"}
    pieces = dict.fromkeys(["a", *(text for name, text in classes.items() if name in pattern)])
    pieces |= letters
    for piece in list(pieces)[:24]:
        body = piece * (characters // len(piece))
        yield head + body + "\0"
        if head:
            yield body + "\0"
