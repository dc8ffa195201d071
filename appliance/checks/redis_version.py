"""Warns of an open Redis whose version has a fault that a login does not prevent.

On this machine the program says its version. In containers the running server says it.
"""

from collections.abc import Iterator

from appliance.checks.startup import Check, CheckLevel
from appliance.launch.opening import Version, first_fixed, parse_version, version_of
from appliance.launch.servers import find_program, version_text
from appliance.mill.init import InitError
from appliance.mill.parts import MONITOR
from appliance.mill.settings import Mill, sinks_settings
from appliance.mill.sinks import READER

WHAT = "open Redis"
TIMEOUT_S = 3.0


def redis_version(mill: Mill) -> Iterator[Check]:
    """Warn of a version with the fault; nothing if Redis is not open, or its version is unknown."""
    if "redis" not in mill.config.network.open:
        return
    version = _asked(mill) if mill.placement.in_containers else _of_program()
    if version is None or (fixed := first_fixed(version)) is None:
        return
    found, first = (".".join(map(str, one)) for one in (version, fixed))
    source, later = "your distribution", "install a later Redis"
    if mill.placement.in_containers:
        source, later = "the image", "run `docker compose pull redis` and `docker compose up -d`"
    yield Check(
        CheckLevel.WARNING,
        WHAT,
        f"version {found} has CVE-2026-81934 unless {source} has mended it: with TLS,"
        f" machines without a password can run code in Redis versions before {first}",
        f"{later}, or let a firewall admit only machines that you trust",
    )


def _of_program() -> Version | None:
    program = find_program("redis-server")
    return None if program is None else version_of(version_text(program))


def _asked(mill: Mill) -> Version | None:
    """Return the version that the server says; None if it does not answer, which other checks
    report."""
    import redis

    from sinks.config import RedisSettings
    from sinks.connections import redis_client

    try:
        settings = RedisSettings.model_validate(sinks_settings(mill, READER, MONITOR)["redis"])
        with redis_client(settings, TIMEOUT_S) as client:
            said = client.execute_command("HELLO")
    except (InitError, redis.RedisError, OSError):
        return None
    if isinstance(said, list):
        # With the older version of the protocol the names and values are in one list.
        said = dict(zip(said[::2], said[1::2], strict=True))
    return parse_version(str(said["version"]))
