"""SQL expressions as users write them: their tokens, and the names in them.

Floor: ground of `stream`. Pure, no JVM. It finds out which words of an expression are columns, so
that a misspelt one is a configuration error before Spark is started, and so that the compiled
plan can give each input's columns a name of their own. It does not judge syntax; Spark does.
"""

import difflib
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum, auto


def words(text: str) -> frozenset[str]:
    """The words of a text, for tables that read better without quotes."""
    return frozenset(text.split())


class TokenKind(Enum):
    """What a piece of an expression is; only words and backticked names can be columns."""

    WORD = auto()
    QUOTED = auto()
    STRING = auto()
    NUMBER = auto()
    SYMBOL = auto()


@dataclass(frozen=True, slots=True)
class Token:
    """A piece of text, where it starts (0-based), and the plain name for words and quoted names."""

    kind: TokenKind
    start: int
    text: str

    @property
    def name(self) -> str:
        if self.kind is TokenKind.QUOTED:
            return self.text[1:-1].replace("``", "`")
        return self.text


class ExpressionFault(ValueError):
    """What was found and what was expected; `position` is the character, counted from 1."""

    def __init__(self, found: str, expected: str, position: int) -> None:
        super().__init__(f"found {found} at character {position}, expected {expected}")
        self.found = f"{found} at character {position}"
        self.expected = expected
        self.position = position


_TOKEN = re.compile(
    r"""
    (?P<space>\s+|--[^\n]*|/\*.*?\*/)
  | (?P<string>[rR]?'(?:[^'\\]|\\.|'')*'|[rR]?"(?:[^"\\]|\\.|"")*")
  | (?P<quoted>`(?:[^`]|``)*`)
  | (?P<number>(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?
      (?:BD|bd|[LlSsYyDdFf])?(?![A-Za-z0-9_]))
  | (?P<word>[A-Za-z_][A-Za-z0-9_]*)
  | (?P<symbol>->|=>|<=>|\|\||::|[<>!]=|<>|==|<<|>>|/(?!\*)|[-+*%&|^~=<>(),.\[\]!?:])
    """,
    re.VERBOSE | re.DOTALL,
)

# Words that Spark's grammar gives a meaning inside an expression over one row.
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

# A line has to count the same whenever and wherever it is read again, and an expression has no
# business with anything but the line.
_FORBIDDEN_FUNCTIONS = words(
    """
    curdate current_catalog current_database current_date current_schema current_time
    current_timestamp current_user getdate input_file_name java_method localtimestamp
    monotonically_increasing_id now rand randn random randstr reflect session_user shuffle
    spark_partition_id try_reflect uniform user uuid
    """
)

_FORBIDDEN_WORDS = words(
    """
    current_date current_time current_timestamp current_user group having join lateral limit
    localtimestamp order over select union where window with
    """
)


def tokenize(text: str) -> Iterator[Token]:
    """The tokens of an expression without blanks and comments.

    Refuses what cannot begin any token: a stray character, a quote that is never closed.
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
    """The tokens that name columns; an unknown, forbidden or qualified name is refused.

    Spark compares names without regard to case, and so does this. A column that is called like
    one of SQL's words is taken for the column wherever the word could stand for one.
    """
    tokens = list(tokenize(text))
    if not tokens:
        raise ExpressionFault("nothing", "an SQL expression", 1)
    known = {column.lower() for column in columns}
    bound = _lambda_names(tokens)
    found: list[Token] = []
    for index, token in enumerate(tokens):
        if token.kind not in (TokenKind.WORD, TokenKind.QUOTED):
            continue
        before = tokens[index - 1].text if index else ""
        after = tokens[index + 1].text if index + 1 < len(tokens) else ""
        name = token.name.lower()
        if token.kind is TokenKind.WORD:
            if after == "(":
                _check_function(token, tokens[index + 2 : index + 3])
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
    """The first fault of the names in an expression, or None."""
    try:
        column_tokens(text, columns)
    except ExpressionFault as fault:
        return fault
    return None


def bare_column(text: str, columns: Collection[str]) -> str | None:
    """The column's own spelling where the whole expression is one column, else None."""
    tokens = list(tokenize(text))
    if len(tokens) != 1 or tokens[0].kind not in (TokenKind.WORD, TokenKind.QUOTED):
        return None
    return next((c for c in columns if c.lower() == tokens[0].name.lower()), None)


def rename_columns(text: str, names: Mapping[str, str]) -> str:
    """The expression with each column replaced by the backticked name that `names` gives it."""
    lowered = {column.lower(): name for column, name in names.items()}
    pieces: list[str] = []
    position = 0
    for token in column_tokens(text, names):
        pieces.append(text[position : token.start])
        pieces.append(quote_name(lowered[token.name.lower()]))
        position = token.start + len(token.text)
    pieces.append(text[position:])
    return "".join(pieces)


def quote_name(name: str) -> str:
    """A name in backticks, so that it may hold dots and anything else."""
    return "`" + name.replace("`", "``") + "`"


def quote_text(text: str) -> str:
    """A string literal of Spark's SQL that means exactly `text`."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return "'" + escaped.replace("\n", "\\n").replace("\r", "\\r").replace("\0", "\\0") + "'"


def _check_function(token: Token, following: list[Token]) -> None:
    name = token.name.lower()
    tells_the_time = name == "unix_timestamp" and [t.text for t in following] == [")"]
    if name in _FORBIDDEN_FUNCTIONS or tells_the_time:
        raise ExpressionFault(
            f"{token.text}()", "functions that depend on nothing but the line", token.start + 1
        )


def _lambda_names(tokens: list[Token]) -> set[str]:
    """Names bound by `x -> …` or `(x, y) -> …`."""
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
    """Is the word part of SQL's own grammar here, rather than a name?"""
    word = tokens[index].name.lower()
    before = tokens[index - 1] if index else None
    after = tokens[index + 1] if index + 1 < len(tokens) else None
    if word in _TYPES:
        if before is not None and (before.text == "::" or before.text.lower() == "as"):
            return True
        if after is not None and after.kind is TokenKind.STRING:
            return True  # DATE '2026-08-01'
        if not is_column and before is not None and before.text in ("<", ",", ":"):
            return True  # ARRAY<STRING>, MAP<STRING, INT>
    if word in ("interval", "extract") and not is_column:
        return True
    if before is not None and before.kind is TokenKind.NUMBER and word in _KEYWORDS:
        return True  # INTERVAL 5 MINUTES
    return word in _KEYWORDS and not (is_column and word not in _ALWAYS_SYNTAX)


# Words that Spark never reads as a column without backticks, or that join two operands.
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
