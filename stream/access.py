"""Access logs' lines (`common`, `combined`): taken apart at their blanks, or else by a pattern.

Floor: pure, no JVM. The pattern says what such a line is, and costs several times what all other
reading of a line does. So a plain line is cut at its blanks: one whose request has three words,
with no ident, no backslash, no quotes but those around its fields, no user's name with a blank, and
a time spelled as both of the usual servers do. Cutting gives what the pattern gives, text by text;
a test compares the two on lines made to tell them apart. Any other line goes to the pattern.
"""

from stream.expression import quote_text

_QUOTED = r'([^"\\]*+(?:\\.[^"\\]*+)*+)'
_HEAD = r"(?s)^(\S++) (\S++) (.+?) \[([^\[\]]++)\] " rf'"{_QUOTED}" (\d{{3}}|-) (\d++|-)'
_COMMON = _HEAD + r"(?:\s.*)?$"
_COMBINED = _HEAD + rf'(?: "{_QUOTED}"?(?: "{_QUOTED}"?)?)?\s*$'

_TIME_FORMAT = "dd/MMM/yyyy:HH:mm:ss Z"

# Every repeat ends where the character behind it begins, so that matching never goes back.
_PLAIN_HEAD = (
    r"^[^\s]++ - [^ ]++ \[[0-9]{2}/[A-Z][a-z]{2}/[0-9]{4}:[0-9]{2}:[0-9]{2}:[0-9]{2} [+-][0-9]{4}\]"
    r' "[^ "\\]++ [^ "\\]++ [^ "\\]++" [0-9]{3} (?:[0-9]++|-)'
)
_PLAIN_COMMON = _PLAIN_HEAD + r"\z"
_PLAIN_COMBINED = _PLAIN_HEAD + r' "[^"\\]*+" "[^"\\]*+"\z'

# Words of a plain line: address, ident, user, [time, zone], "method, target, protocol", status,
# size; in the combined format one more, which is all the rest.
_ADDRESS, _IDENT, _USER, _TIME, _ZONE, _METHOD, _TARGET, _PROTOCOL, _STATUS, _SIZE, _REST = range(
    11
)
_MONTHS = "Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec"
_MONTH_NUMBERS = "01  02  03  04  05  06  07  08  09  10  11  12"


def access_pattern(*, combined: bool) -> tuple[str, int]:
    """The pattern of a format, and how many groups it has."""
    return (_COMBINED, 9) if combined else (_COMMON, 7)


def is_plain_sql(*, combined: bool) -> str:
    """Whether a line is plain."""
    return f"line RLIKE {quote_text(_PLAIN_COMBINED if combined else _PLAIN_COMMON)}"


def words_sql(*, combined: bool) -> str:
    """A plain line cut at its first blanks."""
    return f"split(line, ' ', {_REST + combined})"


def plain_texts(words: str, *, combined: bool) -> dict[str, str]:
    """The texts of a plain line by column."""
    target, protocol = f"{words}[{_TARGET}]", f"{words}[{_PROTOCOL}]"
    texts = {
        "remote_addr": f"{words}[{_ADDRESS}]",
        "ident": f"{words}[{_IDENT}]",
        "user": f"{words}[{_USER}]",
        "method": f"substring({words}[{_METHOD}], 2)",
        "path": f"substring_index({target}, '?', 1)",
        "query": _query(target),
        "protocol": f"substring({protocol}, 1, length({protocol}) - 1)",
        "status": f"{words}[{_STATUS}]",
        "bytes": f"{words}[{_SIZE}]",
    }
    if combined:
        quoted = f"split({words}[{_REST}], '\"')"
        texts |= {"referer": f"{quoted}[1]", "user_agent": f"{quoted}[3]"}
    return texts


def access_time_sql(text: str) -> str:
    """The time that an access log's spelling of it says, NULL where it is spelled otherwise."""
    return f"try_to_timestamp({text}, {quote_text(_TIME_FORMAT)})"


def plain_time_sql(words: str) -> str:
    """The time of a plain line, NULL where there is no such day, hour or zone."""
    time = f"{words}[{_TIME}]"
    month = f"nullif(locate(substring({time}, 5, 3), '{_MONTHS}'), 0)"
    number = f"substring('{_MONTH_NUMBERS}', {month}, 2)"
    spelled = (
        f"concat(substring({time}, 9, 4), '-', {number}, '-', substring({time}, 2, 2), 'T',"
        f" substring({time}, 14, 8), substring({words}[{_ZONE}], 1, 5))"
    )
    return f"try_cast({spelled} AS TIMESTAMP)"


def pattern_texts(field: list[str], request: str, *, combined: bool) -> dict[str, str]:
    """The texts of any line by column, from the pattern's groups and the text of the request."""
    first = f"locate(' ', {request})"
    last = f"(length({request}) - locate(' ', reverse({request})) + 1)"
    three = f"({first} > 0 AND {last} > {first})"
    target = f"substring({request}, {first} + 1, {last} - {first} - 1)"
    texts = {
        "remote_addr": field[1],
        "ident": field[2],
        "user": field[3],
        "method": f"IF({three}, substring_index({request}, ' ', 1), NULL)",
        "path": f"IF({three}, substring_index({target}, '?', 1), {request})",
        "query": f"IF({three}, {_query(target)}, NULL)",
        "protocol": f"IF({three}, substring_index({request}, ' ', -1), NULL)",
        "status": field[6],
        "bytes": field[7],
    }
    return texts | ({"referer": field[8], "user_agent": field[9]} if combined else {})


def _query(target: str) -> str:
    mark = f"locate('?', {target})"
    return f"IF({mark} > 0, substring({target}, {mark} + 1), NULL)"
