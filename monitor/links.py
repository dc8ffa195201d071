"""Addresses of pages, for links that hold whatever users name things."""

from urllib.parse import quote


def group_href(group_id: str) -> str:
    """The page of a group, whatever its name holds."""
    return f"/groups/{quote(group_id, safe='')}"


def part_page(name: str) -> str:
    """Where more is said of a part."""
    if name.startswith("broker-"):
        return "/brokers"
    return {"collector": "/collector", "stream": "/stream"}.get(name, "/#parts")
