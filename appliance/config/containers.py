"""Says whether the parts of a mill are containers.

This module imports nothing of the mill, because every command needs it at its start.
"""

from collections.abc import Mapping

PUBLISHED_VARIABLE = "MILLRACE_PUBLISHED"
"""The variable by which a part knows that it is a container. Only the compose file sets it."""

LOOPBACK_ONLY = "loopback"
"""The only value of the variable. The files `docker-compose.open*.yml` set others beside it."""


def is_container(environ: Mapping[str, str]) -> bool:
    """Return whether the parts are containers."""
    return environ.get(PUBLISHED_VARIABLE) == LOOPBACK_ONLY
