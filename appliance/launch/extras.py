"""Finds the extra of the installed package to which a missing module belongs.

`pip install millrace` installs the command and a broker. The extras install what other parts import
(pyproject.toml). A clone that `make setup` has prepared has everything.
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
"""The modules that the process of a package imports in addition to those of the command."""


def remedy(extra: str) -> str:
    """Return a sentence that says how to install an extra."""
    return f"install it with: pip install 'millrace[{extra}]' (in a clone: make setup)"


def missing_for(room: str) -> str | None:
    """Return a sentence that names a Python package that a process lacks and how to install it;
    None if none is missing."""
    lacking = [name for name in NEEDED_BY.get(room, ()) if find_spec(name) is None]
    if not lacking:
        return None
    return f"the {room} needs the Python package {lacking[0]}; {remedy(room)}"
