"""SQL expressions of users: their tokens, and the names in them.

This module is pure and needs no JVM. It finds the words of an expression that are names of columns.
So a misspelt column is reported before Spark starts, and the compiled plan can rename the columns
of each input. The module does not check the syntax, because Spark does that.
"""

import difflib
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum, auto

from stream.config.functions import fault_of_call, words
from stream.config.literals import literal_text, literal_text_to_spark


class TokenKind(Enum):
    """The kind of a token; only words and backticked names can be columns."""

    WORD = auto()
    QUOTED = auto()
    STRING = auto()
    NUMBER = auto()
    SYMBOL = auto()


@dataclass(frozen=True, slots=True)
class Token:
    """A token of an expression. `start` is its 0-based position in the text.

    `name` is the text without backticks; it is meaningful for words and quoted names only.
    """

    kind: TokenKind
    start: int
    text: str

    @property
    def name(self) -> str:
        if self.kind is TokenKind.QUOTED:
            return self.text[1:-1].replace("``", "`")
        return self.text


class ExpressionFault(ValueError):
    """A fault of an expression: what was found, what was expected, and its 1-based position."""

    def __init__(self, found: str, expected: str, position: int) -> None:
        super().__init__(f"found {found} at character {position}, expected {expected}")
        self.found = f"{found} at character {position}"
        self.expected = expected
        self.position = position


_TOKEN = re.compile(
    r"""
    (?P<space>\s+|--[^\n]*|/\*.*?\*/)
  | (?P<string>[rR]'[^']*'|[rR]"[^"]*"|'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*")
  | (?P<quoted>`(?:[^`]|``)*`)
  | (?P<number>(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?
      (?:BD|bd|[LlSsYyDdFf])?(?![A-Za-z0-9_]))
  | (?P<word>[A-Za-z_][A-Za-z0-9_]*)
  | (?P<symbol>->|=>|<=>|\|\||::|[<>!]=|<>|==|<<|>>|/(?!\*)|[-+*%&|^~=<>(),.\[\]!?:])
    """,
    re.VERBOSE | re.DOTALL,
)

# Words with a meaning in Spark's grammar for expressions over one row.
_KEYWORDS = words(
    """
    all and any array as asc between both by case cast day desc dayofweek div else end escape exists
    extract false from hour ilike in interval is leading like map microsecond microseconds
    millisecond milliseconds minute minutes seconds hours days weeks months years month named_struct
    not null or overlay placing position regexp rlike second similar some struct substr substring
    then time to trailing trim true try_cast week when year for nulls first last
    """
)

_TYPES = words(
    """
    bigint binary boolean byte char date dec decimal double float int integer long numeric real
    short smallint string timestamp timestamp_ltz timestamp_ntz tinyint varchar void
    """
)

_FORBIDDEN_WORDS = words(
    """
    current_date current_time current_timestamp current_user group having join lateral limit
    localtimestamp order over select union where window with
    """
)


def tokenize(text: str) -> Iterator[Token]:
    """Yield the tokens of an expression without blanks and comments.

    Raises ExpressionFault for a stray character or an unclosed quote.
    """
    kinds = {
        "string": TokenKind.STRING,
        "quoted": TokenKind.QUOTED,
        "number": TokenKind.NUMBER,
        "word": TokenKind.WORD,
        "symbol": TokenKind.SYMBOL,
    }
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            quote = text[position]
            if quote in "'\"`":
                raise ExpressionFault(
                    f"a {quote} that is never closed", "its closing quote", position + 1
                )
            raise ExpressionFault(repr(quote), "an SQL expression", position + 1)
        if match.lastgroup != "space":
            assert match.lastgroup is not None
            yield Token(kinds[match.lastgroup], position, match[0])
        position = match.end()


def column_tokens(text: str, columns: Collection[str]) -> list[Token]:
    """Return the tokens that are names of columns.

    Raises ExpressionFault for a name that is unknown, forbidden or qualified (`a.b`).

    Upper and lower case are the same, as in Spark. If a column has the same name as an SQL word,
    the word means the column wherever a column is possible.
    """
    tokens = list(tokenize(text))
    if not tokens:
        raise ExpressionFault("nothing", "an SQL expression", 1)
    known = {column.lower() for column in columns}
    bound = _lambda_names(tokens)
    found: list[Token] = []
    for index, token in enumerate(tokens):
        if token.kind is TokenKind.STRING:
            _check_moment(tokens, index)
        if token.kind not in (TokenKind.WORD, TokenKind.QUOTED):
            continue
        before = tokens[index - 1].text if index else ""
        after = tokens[index + 1].text if index + 1 < len(tokens) else ""
        name = token.name.lower()
        if token.kind is TokenKind.WORD:
            if after == "(" and _is_call(tokens, index):
                _check_call(tokens, index)
                continue
            if name in bound or _is_syntax(tokens, index, name in known):
                continue
        if before == ".":
            raise ExpressionFault(
                f"`.{token.text}`",
                "plain column names: declare a nested field under columns",
                token.start + 1,
            )
        if name not in known:
            raise _unknown(token, columns)
        found.append(token)
    return found


def unknown_columns(text: str, columns: Collection[str]) -> ExpressionFault | None:
    """Return the first fault of `column_tokens` in an expression, or None if there is none."""
    try:
        column_tokens(text, columns)
    except ExpressionFault as fault:
        return fault
    return None


def bare_column(text: str, columns: Collection[str]) -> str | None:
    """Return the name of the column, as in `columns`, if the expression is only that column.

    None for any other expression.
    """
    tokens = list(tokenize(text))
    if len(tokens) != 1 or tokens[0].kind not in (TokenKind.WORD, TokenKind.QUOTED):
        return None
    return next((c for c in columns if c.lower() == tokens[0].name.lower()), None)


@dataclass(frozen=True, slots=True)
class SparkSql:
    """An expression in Spark's SQL, with a map to positions in the text that the user wrote.

    `starts` has for each token its position in `text` and its position in the user's text.
    """

    text: str
    starts: tuple[tuple[int, int], ...]

    def place(self, position: int) -> int:
        """Convert a 0-based position in `text` to a 0-based position in the user's text."""
        ours, theirs = max(start for start in self.starts if start[0] <= position)
        end = next((start for start in self.starts if start[0] > ours), None)
        place = theirs + position - ours
        return place if end is None else min(place, max(theirs, end[1] - 1))


def spark_sql(text: str, names: Mapping[str, str]) -> SparkSql:
    """Return the expression in Spark's SQL, with columns renamed by `names` and in backticks.

    Text literals are rewritten so that Spark reads our meaning of them. Comments become blanks.
    """
    lowered = {column.lower(): name for column, name in names.items()}
    columns = {token.start for token in column_tokens(text, names)}
    pieces: list[str] = []
    starts = [(0, 0)]
    length = end = 0
    for token in tokenize(text):
        if token.kind is TokenKind.STRING:
            piece = quote_text(literal_text(token.text))
        elif token.start in columns:
            piece = quote_name(lowered[token.name.lower()])
        else:
            piece = token.text
        gap = text[end : token.start]
        gap = " " if "--" in gap or "/*" in gap else gap
        pieces += [gap, piece]
        starts.append((length + len(gap), token.start))
        length += len(gap) + len(piece)
        end = token.start + len(token.text)
    return SparkSql("".join(pieces), tuple(starts))


def reads_otherwise_in_spark(text: str) -> bool:
    """Tell whether Spark's parser reads a literal of the expression differently than we do."""
    return any(
        literal_text(token.text) != literal_text_to_spark(token.text)
        for token in tokenize(text)
        if token.kind is TokenKind.STRING
    )


def quote_name(name: str) -> str:
    """Return a name in backticks, so that it can contain dots and anything else."""
    return "`" + name.replace("`", "``") + "`"


def quote_text(text: str) -> str:
    """Return a string literal of Spark's SQL that means exactly `text`."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'").replace("\0", "\\u0000")
    return "'" + escaped.replace("\n", "\\n").replace("\r", "\\r") + "'"


def _check_call(tokens: list[Token], index: int) -> None:
    name = tokens[index].text
    if index and name.lower() in _TYPES and tokens[index - 1].text.lower() in ("as", "::"):
        return  # a type, as in AS DECIMAL(10, 2)
    has_arguments = [token.text for token in tokens[index + 2 : index + 3]] != [")"]
    fault = fault_of_call(name, has_arguments=has_arguments)
    if fault is not None:
        raise ExpressionFault(*fault, tokens[index].start + 1)


def _check_moment(tokens: list[Token], index: int) -> None:
    """Refuse a literal that means the present time: DATE 'now', cast('today' AS date).

    Its value would change when a line is counted again.
    """
    if literal_text(tokens[index].text).strip().lower() not in _MOMENTS or not index:
        return
    before = [token.text.lower() for token in tokens[max(0, index - 2) : index]]
    if before[-1] in _TYPES or (before[-1] == "(" and before[0] in _TO_TIMES):
        raise ExpressionFault(
            f"{tokens[index].text}, which depends on the day it is read",
            "a date or a time, such as DATE '2026-08-01'",
            tokens[index].start + 1,
        )


def _is_call(tokens: list[Token], index: int) -> bool:
    """Tell whether the word before a parenthesis names a function, and not an operator."""
    word = tokens[index].text.lower()
    if word in _BEFORE_PARENTHESES:
        return False
    if word in ("like", "ilike", "rlike", "regexp", "any", "all", "some", "div"):
        before = tokens[index - 1].text.lower() if index else "("
        return before in _BEFORE_OPERANDS or before in _BEFORE_PARENTHESES - {"not", "in"}
    return True


def _lambda_names(tokens: list[Token]) -> set[str]:
    """Return the names bound by `x -> …` or `(x, y) -> …`."""
    names: set[str] = set()
    for index, token in enumerate(tokens):
        if token.text != "->" or index == 0:
            continue
        before = index - 1
        if tokens[before].kind is TokenKind.WORD:
            names.add(tokens[before].name.lower())
        elif tokens[before].text == ")":
            before -= 1
            while before >= 0 and tokens[before].text != "(":
                if tokens[before].kind is TokenKind.WORD:
                    names.add(tokens[before].name.lower())
                before -= 1
    return names


def _is_syntax(tokens: list[Token], index: int, is_column: bool) -> bool:
    """Tell whether the word is part of SQL's grammar here, and not a name."""
    word = tokens[index].name.lower()
    before = tokens[index - 1] if index else None
    after = tokens[index + 1] if index + 1 < len(tokens) else None
    if word in _TYPES:
        if before is not None and (before.text == "::" or before.text.lower() == "as"):
            return True
        if after is not None and after.kind is TokenKind.STRING:
            return True  # a literal, as in DATE '2026-08-01'
        if not is_column and before is not None and before.text in ("<", ",", ":"):
            return True  # a part of a type, as in ARRAY<STRING> or MAP<STRING, INT>
    if word in ("interval", "extract") and not is_column:
        return True
    if before is not None and before.kind is TokenKind.NUMBER and word in _KEYWORDS:
        return True  # a unit, as in INTERVAL 5 MINUTES
    return word in _KEYWORDS and not (is_column and word not in _ALWAYS_SYNTAX)


# Texts that Spark reads as the present time or day, and the words that convert texts to times.
_MOMENTS = words("now today tomorrow yesterday")
_TO_TIMES = words("cast try_cast date timestamp timestamp_ltz timestamp_ntz")

# Words after which a parenthesis is not an argument list, and symbols that precede an operand.
_BEFORE_PARENTHESES = words("and as between case else escape in is not or then when")
_BEFORE_OPERANDS = words("( , [ + - * / % & | ^ ~ = == <> != < > <= >= <=> || -> => !")

# Words that are a column only in backticks, because Spark refuses them otherwise or they join two
# operands.
_ALWAYS_SYNTAX = words(
    """
    and as between case cast div else end escape false ilike in is like not null or regexp rlike
    then true when
    """
)


def _unknown(token: Token, columns: Collection[str]) -> ExpressionFault:
    if token.kind is TokenKind.WORD and token.name.lower() in _FORBIDDEN_WORDS:
        return ExpressionFault(
            token.text, "an SQL expression over the columns of one line", token.start + 1
        )
    close = difflib.get_close_matches(token.name.lower(), [c.lower() for c in columns], n=1)
    hint = f" (did you mean {close[0]}?)" if close else ""
    return ExpressionFault(
        f"unknown column {token.name}", f"one of {', '.join(columns)}{hint}", token.start + 1
    )
