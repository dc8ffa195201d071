"""Which extra of the installed package a missing module belongs to.

`pip install millrace` brings the command and a broker. What other parts import comes with extras
(pyproject.toml); a clone that `make setup` prepared has everything.
"""

from importlib.util import find_spec

EXTRA_OF = {
    "fastapi": "monitor",
    "jinja2": "monitor",
    "numpy": "collector",
    "prometheus_client": "collector",
    "py4j": "stream",
    "pyspark": "stream",
    "sse_starlette": "monitor",
    "uvicorn": "monitor",
    "watchdog": "collector",
}
"""The first extra of the package that contains each module."""

NEEDED_BY = {
    "collector": ("numpy", "prometheus_client", "watchdog"),
    "monitor": ("fastapi", "jinja2", "prometheus_client", "sse_starlette", "uvicorn"),
    "stream": ("pyspark",),
}
"""The modules that a room's process imports in addition to those of the command."""


def remedy(extra: str) -> str:
    """Return a sentence on how to install an extra."""
    return f"install it with: pip install 'millrace[{extra}]' (in a clone: make setup)"


def missing_for(room: str) -> str | None:
    """Return which package a room's process lacks and how to install it; None if none is
    missing."""
    lacking = [name for name in NEEDED_BY.get(room, ()) if find_spec(name) is None]
    if not lacking:
        return None
    return f"the {room} needs the Python package {lacking[0]}; {remedy(room)}"
