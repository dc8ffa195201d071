"""Addresses of pages for names with any characters."""

from urllib.parse import quote

from starlette.convertors import Convertor, register_url_convertor

NAME = "any_name"
"""The kind of a path parameter with any characters, slashes and line ends among them."""

_DOTS = (".", "..")


class AnyName(Convertor[str]):
    """A name at the end of a path. It can contain slashes. Links percent-encode it, and the server
    decodes it.

    Starlette's own `path` convertor does not match line ends, so it is not used.
    """

    regex = r"[\s\S]*"

    def convert(self, value: str) -> str:
        """Return the name as it is, because the server has already decoded it."""
        return value

    def to_string(self, value: str) -> str:
        """Return the name, percent-encoded for a path."""
        return quote(value, safe="")


register_url_convertor(NAME, AnyName())


def named(path_name: str, query_name: str | None) -> str:
    """Return the name from the query or else from the path. Names such as `.` and `..` are in the
    query, because browsers remove these from a path.
    """
    return query_name if query_name is not None and not path_name else path_name


def group_href(group_id: str) -> str:
    """Return the page of a group."""
    if group_id in _DOTS:
        return f"/groups/?id={quote(group_id, safe='')}"
    return f"/groups/{quote(group_id, safe='')}"


def with_query(address: str, query: str) -> str:
    """Return an address with these parameters added to its query string."""
    return f"{address}{'&' if '?' in address else '?'}{query}"


def part_page(name: str) -> str:
    """Return the page that shows details of a part."""
    if name.startswith("broker-"):
        return "/brokers"
    return {"collector": "/collector", "stream": "/stream"}.get(name, "/#parts")
