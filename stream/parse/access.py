"""SQL that splits lines of access logs (`common`, `combined`), at blanks or by a pattern.

This module is pure and needs no JVM. A pattern defines the format, but matching it costs several
times as much as all other parsing. So `java/Access.java` splits *plain* lines at blanks, and the
pattern parses all others. A plain line has a request of three words, no ident, no backslash, no
quotes except around its fields, no blank in the user's name, and a time in the format of the usual
servers. For plain lines both ways give the same texts; a test compares them on lines made to find
differences.

Fields that a server adds after the user agent are ignored, because nginx's `main` and the logs of
ingress-nginx and Traefik differ from `combined` only in such fields. A line with a field before the
client's address has another format. It is refused, because each column would get the text of its
neighbour.
"""

from stream.config.expression import quote_text
from stream.config.line_patterns import CLIENT_NAME, COMBINED, COMMON, IPV4, IPV6

# The beginnings of lines in other formats, each with the shipped format that reads such lines.
_ONE = rf"(?:{IPV4}|{IPV6}|{CLIENT_NAME}|-)"
_CLIENT = rf"(?:{IPV4}|{IPV6}|unix:\S*+|[0-9A-Za-z_-]++\.[0-9A-Za-z._-]++)"
_OTHER_FORMATS = (
    ("forwarded_combined", rf'^"?{_ONE}(?:, ?{_ONE}){{1,30}}+"? \S++ [^"]*\[[^\[\]]++\] "'),
    ("vhost_combined", rf'^\S++ {_CLIENT} \S++ [^"]*\[[^\[\]]++\] "'),
)

# The texts of a plain line, in the order in which `java/Access.java` returns them.
_PLAIN_TEXTS = (
    "remote_addr", "ident", "user", "time", "method", "target", "protocol", "status", "bytes",
    "referer", "user_agent",
)  # fmt: skip
_COMBINED_ALONE = ("referer", "user_agent")


def access_pattern(*, combined: bool) -> tuple[str, int]:
    """Return the pattern of a format, and its number of groups."""
    return (COMBINED, 9) if combined else (COMMON, 7)


def other_format_sql() -> str:
    """Return SQL for the name of the format that a refused line seems to have; NULL if unknown."""
    cases = (
        f"WHEN line RLIKE {quote_text(pattern)} THEN {quote_text(name)}"
        for name, pattern in _OTHER_FORMATS
    )
    return f"CASE {' '.join(cases)} END"


def words_sql(*, combined: bool) -> str:
    """Return SQL for the array of a plain line's texts; NULL for any other line."""
    return "millrace_combined(line)" if combined else "millrace_common(line)"


def plain_texts(words: str, *, combined: bool) -> dict[str, str]:
    """Return SQL for each column of a plain line; `words` is the array of its texts."""
    texts = {
        name: _word(words, name) for name in _PLAIN_TEXTS if combined or name not in _COMBINED_ALONE
    }
    del texts["time"]
    target = texts.pop("target")
    return texts | {"path": f"substring_index({target}, '?', 1)", "query": _query(target)}


def _word(words: str, name: str) -> str:
    return f"{words}[{_PLAIN_TEXTS.index(name)}]"


def plain_time_sql(words: str) -> str:
    """Return SQL for the time of a plain line, NULL if there is no such day, hour or zone."""
    return f"millrace_access_time({_word(words, 'time')})"


def pattern_texts(field: list[str], request: str, *, combined: bool) -> dict[str, str]:
    """Return SQL for each column of a line that the pattern has parsed.

    `field` is SQL for each group of the pattern, `request` for the request in quotes.
    """
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
