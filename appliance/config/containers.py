"""Says whether the parts of a mill are containers.

This module imports nothing of the mill, because every command needs it at its start.
"""

from collections.abc import Mapping

PUBLISHED_VARIABLE = "MILLRACE_PUBLISHED"
"""The variable by which a part knows that it is a container. Only the compose file sets it."""

LOOPBACK_ONLY = "loopback"
"""The only value of the variable. The files `docker-compose.open*.yml` and
`docker-compose.hosts.yml` set others beside it."""

RECREATE = "docker compose up -d --wait --force-recreate"
"""The command after which every container runs with the present configuration file."""

HOST_VARIABLE = "MILLRACE_PUBLISHED_HOST"
"""The variable with the profiles of compose. One of them names the broker of this host, if the
brokers are on several hosts. Only `docker-compose.hosts.yml` sets it."""

HOST_PROFILE = "host-"
"""The beginning of the profile of a host, before the id of its broker."""


def is_container(environ: Mapping[str, str]) -> bool:
    """Return whether the parts are containers."""
    return environ.get(PUBLISHED_VARIABLE) == LOOPBACK_ONLY


def host_broker(environ: Mapping[str, str]) -> int | None:
    """Return the broker of this host, as the profile of compose names it; None unless the profiles
    name exactly one."""
    if not is_container(environ):
        return None
    profiles = environ.get(HOST_VARIABLE, "").replace(" ", "").split(",")
    named = [one.removeprefix(HOST_PROFILE) for one in profiles if one.startswith(HOST_PROFILE)]
    is_one = len(named) == 1 and named[0].isascii() and named[0].isdigit()
    return int(named[0]) if is_one else None
