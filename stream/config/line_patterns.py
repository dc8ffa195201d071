"""The patterns of access logs, syslog and W3C, for the stream's SQL and for recognising lines.

This module is pure. All patterns have Java's syntax. Their repeats of groups are possessive,
because Java matches other repeats by recursion, and its stack would then limit the length of a
field.
"""

from collections.abc import Mapping, Sequence

_QUOTED = r'([^"\\]*+(?:\\.[^"\\]*+)*+)'
IPV4 = r"\d{1,3}\.\d{1,3}\.\d{1,3}\.\d{1,3}"
IPV6 = r"[0-9A-Fa-f.]*+:[0-9A-Fa-f.]*+:[0-9A-Fa-f:.]*+(?:%[0-9A-Za-z._-]++)?"
CLIENT_NAME = r"[0-9A-Za-z_][0-9A-Za-z._-]*+"
# nginx writes `unix:` for a client that connected through a UNIX socket.
_ADDRESS = rf"(?:-|unix:\S*+|{IPV6}|\[{IPV6}\]|{CLIENT_NAME})"
# These patterns refuse a line with an additional field before the client's address. In such a line
# the address is where the ident should be, or a hyphen is one word of the user's name.
_IDENT = rf"(?!(?:{IPV4}|{IPV6}) )\S++"
_USER = r"(?!- [^\[]|[^\[]* - ).+?"
_HEAD = (
    rf"(?s)^({_ADDRESS}) ({_IDENT}) ({_USER}) \[([^\[\]]++)\] "
    rf'"{_QUOTED}" (\d{{3}}|-) (\d++|-)'
)
COMMON = _HEAD + r"(?:\s.*)?$"
# The quoted fields at the end are optional, because a line can end inside any of them.
COMBINED = _HEAD + rf'(?: "{_QUOTED}(?:"(?: "{_QUOTED}(?:"(?:\s.*)?)?)?)?)?\s*$'

_STRUCTURED_DATA = r"-|(?:\[[^\]\\]*+(?:\\.[^\]\\]*+)*+\])++"
_SHORT_TIME = (
    r"[A-Z][a-z]{2} [ \d]?\d(?: \d{4})? \d\d:\d\d:\d\d(?:[.,]\d{1,9})?"
    r"(?: \d{4}(?=[: ]))?(?: [A-Z]{3,5}(?=:))?"
)
_ISO_TIME = r"\d{4}-\d\d-\d\dT\S+?(?=:? )"
# A token that ends with a single colon, or contains a bracket, is the program and not the host.
_HOST = r"[^\s\[\]]++(?<![^:]:)|\[[0-9A-Fa-f:.]++\]"
_WORD = r"[^\s\[\]:]++"
SYSLOG = (
    r"(?s)^\ufeff?(?:\d++ (?=<))?(?:"
    rf"<(\d{{1,3}})>1 (\S++) (\S++) (\S++) (\S++) (\S++) ({_STRUCTURED_DATA})(?: \ufeff?(.*?))?"
    r"|(?:<(\d{1,3})>)?(?:\d++: )?(?:([^\s:]++): )?[*.]?"
    rf"(?:({_SHORT_TIME})|({_ISO_TIME})):? "
    rf"(?:({_HOST})(?: :)?(?: |$))?"
    rf"(?:({_WORD})(?:\[([^\]\s]*+)\]:? ?|:(?: |$))|({_WORD}(?: {_WORD}){{1,3}})\[(\d++)\]: ?)?"
    r"(.*?)"
    r")\s*$"
)
SYSLOG_GROUPS = 18

_IP = r"[0-9A-Fa-f.:]++(?:%\S*+)?"
_NUMBER = r"\d++(?:\.\d*+)?"
_METHOD = r"[A-Z][A-Z_-]*+"
# The pattern of the text of some W3C fields, by name. A field with another name can have any text.
_KINDS: Mapping[str, str] = {
    "date": r"\d{4}-\d\d-\d\d",
    "time": r"\d\d:\d\d(?::\d\d(?:\.\d++)?)?",
    "c-ip": _IP,
    "s-ip": _IP,
    "cs-method": _METHOD,
    "cs-uri-stem": r"[/*]\S*+",
    "s-port": r"\d++",
    "c-port": r"\d++",
    "sc-status": r"\d{3}",
    "sc-substatus": r"\d++",
    "sc-win32-status": r"\d++",
    "sc-bytes": _NUMBER,
    "cs-bytes": _NUMBER,
    "time-taken": _NUMBER,
    "cs-version": r"[A-Za-z]++/[0-9.]++",
}
_ANYTHING = r'"(?:[^"]|"")*+"|[^\s"]\S*+'


def w3c_pattern(names: Sequence[str], kept: Sequence[str]) -> str:
    """Return a pattern for a line with these fields; those in `kept` are groups."""
    fields = []
    for name in names:
        kind = _KINDS.get(name)
        inner = _ANYTHING if kind is None else rf"{kind}(?!\S)|-(?!\S)"
        fields.append(f"({inner})" if name in kept else f"(?:{inner})")
    return r"^" + r"[ \t]++".join(fields) + r"[ \t\r]*$"
