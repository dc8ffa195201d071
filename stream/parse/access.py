"""Access logs' lines (`common`, `combined`): taken apart at their blanks, or else by a pattern.

Floor: pure, no JVM. The pattern says what such a line is, and costs several times what all other
reading of a line does. So a plain line is cut by `java/Access.java`: one whose request has three
words, with no ident, no backslash, no quotes but those around its fields, no user's name with a
blank, and a time spelled as both of the usual servers do. Cutting gives what the pattern gives,
text by text; a test compares the two on lines made to tell them apart. Any other line goes to the
pattern.

Fields that a server adds behind the user agent are passed over, because nginx's `main` and the
logs of ingress-nginx and Traefik differ from `combined` in nothing else. A field in front of the
client's address makes another format: its lines are refused, because each column would hold the
text of its neighbour.
"""

from stream.config.expression import quote_text
from stream.config.line_patterns import CLIENT_NAME, COMBINED, COMMON, IPV4, IPV6

# What stands in front of a line of another format, and the shipped format that reads it.
_ONE = rf"(?:{IPV4}|{IPV6}|{CLIENT_NAME}|-)"
_CLIENT = rf"(?:{IPV4}|{IPV6}|unix:\S*+|[0-9A-Za-z_-]++\.[0-9A-Za-z._-]++)"
_OTHER_FORMATS = (
    ("forwarded_combined", rf'^"?{_ONE}(?:, ?{_ONE}){{1,30}}+"? \S++ [^"]*\[[^\[\]]++\] "'),
    ("vhost_combined", rf'^\S++ {_CLIENT} \S++ [^"]*\[[^\[\]]++\] "'),
)

# The texts of a plain line, as `java/Access.java` gives them.
_PLAIN_TEXTS = (
    "remote_addr", "ident", "user", "time", "method", "target", "protocol", "status", "bytes",
    "referer", "user_agent",
)  # fmt: skip
_COMBINED_ALONE = ("referer", "user_agent")


def access_pattern(*, combined: bool) -> tuple[str, int]:
    """The pattern of a format, and how many groups it has."""
    return (COMBINED, 9) if combined else (COMMON, 7)


def other_format_sql() -> str:
    """The name of the format that a line seems to have instead, NULL where none is known."""
    cases = (
        f"WHEN line RLIKE {quote_text(pattern)} THEN {quote_text(name)}"
        for name, pattern in _OTHER_FORMATS
    )
    return f"CASE {' '.join(cases)} END"


def words_sql(*, combined: bool) -> str:
    """The texts of a plain line, NULL of any other."""
    return "millrace_combined(line)" if combined else "millrace_common(line)"


def plain_texts(words: str, *, combined: bool) -> dict[str, str]:
    """The texts of a plain line by column."""
    texts = {
        name: _word(words, name) for name in _PLAIN_TEXTS if combined or name not in _COMBINED_ALONE
    }
    del texts["time"]
    target = texts.pop("target")
    return texts | {"path": f"substring_index({target}, '?', 1)", "query": _query(target)}


def _word(words: str, name: str) -> str:
    return f"{words}[{_PLAIN_TEXTS.index(name)}]"


def plain_time_sql(words: str) -> str:
    """The time of a plain line, NULL where there is no such day, hour or zone."""
    return f"millrace_access_time({_word(words, 'time')})"


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
