"""The addresses, users and passwords with which the mill's parts and commands reach MySQL and
Redis."""

from typing import Any

from pydantic import SecretStr

from appliance.config.model import MillConfig
from appliance.mill.home import Home
from appliance.mill.init import read_secret
from appliance.mill.parts import Part, Placement, parts_of
from sinks.config import MySqlSection, RedisSection, SinkTls

DATABASE = "millrace"
SINK_USER = "mill"
READER = "reader"
MONITOR_USER = "monitor"
"""The user of an open Redis as which the mill's own parts and commands read."""

SOCKETS = {"redis": "redis.sock", "mysql": "db/mysqld.sock"}
"""The Unix sockets of the bundled servers, below their data folders."""

SOCKETS_IN_CONTAINERS = {
    "redis": "/run/sockets/redis/redis.sock",
    "mysql": "/run/sockets/mysql/mysqld.sock",
}
"""The same sockets in containers. Each is in a volume of its own, which the server and the mill's
parts that read or write counts mount at the same place."""


def settings_of_sinks(
    home: Home, config: MillConfig, placement: Placement, user: str, secrets_of: str
) -> dict[str, Any]:
    """Return the settings for connecting to MySQL and Redis as `user`; None for a sink that is
    off."""
    bundled = {part.name: part for part in parts_of(config, placement)}
    mysql, redis = config.sinks.mysql, config.sinks.redis
    return {
        "mysql": None if mysql is None else _mysql(home, mysql, bundled, user, secrets_of),
        "redis": None if redis is None else _redis(home, redis, bundled, user, secrets_of),
    }


def _mysql(
    home: Home, section: MySqlSection, bundled: dict[str, Part], user: str, secrets_of: str
) -> dict[str, Any]:
    if (server := bundled.get("mysql")) is not None:
        return {
            "host": server.host,
            "port": server.port,
            "user": user,
            "password": read_secret(home, f"{secrets_of}/mysql"),
            "database": DATABASE,
            "reader": READER,
            "socket": socket_of(home, server),
        }
    return {
        "host": section.host,
        "port": section.port or 3306,
        "user": section.user or user,
        "password": revealed(section.password) or "",
        "database": section.database or DATABASE,
        "reader": None,
        "tls": _tls(home, section.tls),
    }


def _redis(
    home: Home, section: RedisSection, bundled: dict[str, Part], user: str, secrets_of: str
) -> dict[str, Any]:
    """Return the settings for Redis.

    The user `reader` of the bundled server has no password, because every account of this machine
    may read the mill's keys. If the server is open, the mill's parts read as a user of their own.
    """
    if (server := bundled.get("redis")) is not None:
        name = SINK_USER if user == SINK_USER else MONITOR_USER if server.is_open else READER
        return {
            "host": server.host,
            "port": server.port,
            "username": name,
            "password": READER if name == READER else read_secret(home, f"{secrets_of}/redis"),
            "socket": socket_of(home, server),
        }
    return {
        "host": section.host,
        "port": section.port or 6379,
        "username": section.username,
        "password": revealed(section.password),
        "tls": _tls(home, section.tls),
    }


def socket_of(home: Home, server: Part) -> str | None:
    """Return the path of the server's Unix socket, by which the mill's parts reach an open server;
    None for a server that is not open."""
    if not server.is_open:
        return None
    if home.in_containers:
        return SOCKETS_IN_CONTAINERS[server.name]
    return str(home.part_data(server.name) / SOCKETS[server.name])


def _tls(home: Home, tls: SinkTls | None) -> dict[str, str | None] | None:
    """Return the TLS settings of a server with the absolute path of its CAs; None without TLS."""
    if tls is None:
        return None
    return {"ca": None if tls.ca is None else str(home.folder / tls.ca)}


def revealed(secret: SecretStr | None) -> str | None:
    """Return the text of a secret; None if there is none."""
    return None if secret is None else secret.get_secret_value()
