"""Addresses of pages, for links that hold whatever users name things."""

from urllib.parse import quote

from starlette.convertors import Convertor, register_url_convertor

NAME = "any_name"
"""Of a parameter in a route's path: any characters, slashes and line ends among them."""

_DOTS = (".", "..")


class AnyName(Convertor[str]):
    """A name at the end of a path, with slashes, which links quote and the server unquotes.

    Starlette's own `path` stops at a line end.
    """

    regex = r"[\s\S]*"

    def convert(self, value: str) -> str:
        """Return the name, which the server has unquoted."""
        return value

    def to_string(self, value: str) -> str:
        """Return the name as it stands in a path."""
        return quote(value, safe="")


register_url_convertor(NAME, AnyName())


def named(path_name: str, query_name: str | None) -> str:
    """Return the name that an address means: browsers drop a path's `.` and `..`, quoted or not."""
    return query_name if query_name is not None and not path_name else path_name


def group_href(group_id: str) -> str:
    """The page of a group, whatever its name holds."""
    if group_id in _DOTS:
        return f"/groups/?id={quote(group_id, safe='')}"
    return f"/groups/{quote(group_id, safe='')}"


def with_query(address: str, query: str) -> str:
    """Return an address with more in its query."""
    return f"{address}{'&' if '?' in address else '?'}{query}"


def part_page(name: str) -> str:
    """Where more is said of a part."""
    if name.startswith("broker-"):
        return "/brokers"
    return {"collector": "/collector", "stream": "/stream"}.get(name, "/#parts")
