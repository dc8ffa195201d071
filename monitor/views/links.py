"""Addresses of pages, whatever characters names have."""

from urllib.parse import quote

from starlette.convertors import Convertor, register_url_convertor

NAME = "any_name"
"""The kind of a path parameter with any characters, slashes and line ends among them."""

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
    """Return the name from the path, or from the query: browsers drop `.` and `..` from a path."""
    return query_name if query_name is not None and not path_name else path_name


def group_href(group_id: str) -> str:
    """Return the page of a group."""
    if group_id in _DOTS:
        return f"/groups/?id={quote(group_id, safe='')}"
    return f"/groups/{quote(group_id, safe='')}"


def with_query(address: str, query: str) -> str:
    """Return an address with more in its query."""
    return f"{address}{'&' if '?' in address else '?'}{query}"


def part_page(name: str) -> str:
    """Return the page that shows details of a part."""
    if name.startswith("broker-"):
        return "/brokers"
    return {"collector": "/collector", "stream": "/stream"}.get(name, "/#parts")
