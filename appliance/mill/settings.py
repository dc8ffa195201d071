"""The settings of each part's process: its section of the file, with addresses and secrets added.

A part gets exactly the settings that it needs, as one JSON object on an inherited descriptor. A
part never reads the configuration file, and its arguments and environment contain no secrets.
"""

import json
import sys
from dataclasses import dataclass
from typing import Any

from pydantic import SecretStr

from appliance.config.model import MillConfig, Scalar
from appliance.config.replication import replication_settings
from appliance.machine.java import JavaRuntime, find_java
from appliance.mill.certificates import tls_files
from appliance.mill.class_data import archive_path
from appliance.mill.home import Home
from appliance.mill.init import LOGIN_SECRET, read_secret
from appliance.mill.page_settings import page_settings
from appliance.mill.parts import (
    BROKER_PREFIX,
    LOOPBACK,
    Part,
    Placement,
    ProbeKind,
    bootstrap_servers,
    first_voters,
    monitor_port,
    parts_of,
    voters,
)
from appliance.mill.voter_folders import joins_cluster
from broker.config import SASL_SSL, SSL, check_topic_settings, topic_settings_text
from protocol.security.acl import USER_PREFIX
from stream.spark.jars import jar_paths

DATABASE = "millrace"
SINK_USER = "mill"
READER = "reader"
WISH = (sys.executable, "-m", "appliance", "--config")


@dataclass(frozen=True, slots=True)
class Mill:
    """One mill: its folders, its checked configuration, and where its parts are.

    `sha256` is the hash, in hexadecimal, of the bytes from which the configuration was parsed. The
    file is not read again for it, because it can have changed.
    """

    home: Home
    config: MillConfig
    placement: Placement
    sha256: str | None = None

    @property
    def parts(self) -> tuple[Part, ...]:
        """The parts in this configuration."""
        return parts_of(self.config, self.placement)

    def part(self, name: str) -> Part | None:
        """Return one part by name."""
        return next((part for part in self.parts if part.name == name), None)


def room_of(part: str) -> str:
    """Return the package that a part's process runs."""
    return "broker" if part.startswith("broker-") else part


def settings_for(mill: Mill, part: str) -> dict[str, Any]:
    """Return the settings of one of the mill's own parts (not Redis or MySQL). Raises InitError if
    a secret is missing.
    """
    makers = {
        "broker": broker_settings,
        "collector": collector_settings,
        "stream": stream_settings,
        "monitor": monitor_settings,
    }
    return makers[room_of(part)](mill, part)


def encode_settings(settings: dict[str, Any]) -> bytes:
    """Encode the settings for the descriptor."""
    return json.dumps(settings, separators=(",", ":")).encode()


def broker_settings(mill: Mill, part: str) -> dict[str, Any]:
    """Return one broker's settings. A broker of a cluster also has a listener for the other
    brokers, and their addresses."""
    number = int(part.removeprefix(BROKER_PREFIX))
    cluster, ports, bind = mill.config.cluster, mill.config.ports, mill.placement.bind_host
    index = number - 1
    host = mill.placement.host_of(part)
    listeners = {
        # Programs outside of the mill reach every broker at an address of this machine.
        "HOST": _listener(bind, ports.host + index, LOOPBACK),
        "MILL": _listener(bind, ports.mill + index, host),
    }
    others = voters(mill.config, mill.placement)
    joins = bool(others) and joins_cluster(mill.home, mill.config, number)
    if not joins:
        # The brokers in these settings form a new cluster. The brokers of an existing cluster find
        # each other in the cluster's log.
        first = {*first_voters(mill.config), number}
        others = {one: where for one, where in others.items() if one in first}
    if others:
        listeners["BROKER"] = _listener(bind, ports.broker + index, host)
    network = mill.config.network
    if network.opens_kafka:
        protocol = SSL if network.login is None else SASL_SSL
        advertised = {"advertised_host": network.names[0], "security_protocol": protocol}
        net = _listener(network.listen, ports.net + index, host)
        listeners["NET"] = {**net, **advertised}
    return {
        "part": part,
        "node_id": number,
        "cluster_id": read_secret(mill.home, f"{part}/cluster_id"),
        "log_dir": str(mill.home.part_data(part)),
        "listeners": listeners,
        "rack": cluster.racks[cluster.broker_ids.index(number)] if cluster.racks else None,
        "tls": tls_files(mill.home, network, part) if network.opens_kafka else None,
        "login_secret": read_secret(mill.home, f"{part}/{LOGIN_SECRET}") if network.login else None,
        "joins": joins,
        "voters": {
            str(node_id): {"host": where[0], "port": where[1]} for node_id, where in others.items()
        },
        "status": {"host": bind, "port": ports.broker_status + index},
        "settings": {
            **replication_settings(len(cluster.broker_ids)),
            **(super_users(mill.config) if network.login else {}),
            **cluster.settings,
        },
    }


def super_users(config: MillConfig) -> dict[str, str]:
    """Return the broker setting for the users that may do everything."""
    return {"super.users": ";".join(f"{USER_PREFIX}{one}" for one in config.security.super_users)}


def _listener(bind: str, port: int, advertised_host: str) -> dict[str, Any]:
    return {
        "host": bind,
        "port": port,
        "advertised_host": advertised_host,
        "advertised_port": port,
    }


def collector_settings(mill: Mill, part: str = "collector") -> dict[str, Any]:
    """Return the collector's settings. Globs are relative to the mill's folder."""
    config = mill.config
    return {
        **collector_wish(mill),
        "part": part,
        "bootstrap_servers": bootstrap_servers(config, mill.placement),
        "security": security_settings(mill),
        "home": str(mill.home.folder),
        "data_dir": str(mill.home.part_data(part)),
        "status": {"host": mill.placement.bind_host, "port": config.ports.collector},
        "reload": _reload(mill, "--collector"),
    }


def _reload(mill: Mill, option: str) -> dict[str, Any]:
    """Return the file that a part watches, and the command that prints the part's settings when the
    file has changed.

    `option` is the option of the command `wish` that names the part.
    """
    file = mill.home.config_file
    return {
        "file": str(file),
        "command": [*WISH, str(file), "wish", option],
        "sha256": mill.sha256,
        # The copy of an edited file is always replaced atomically, so the part need not wait until
        # it is complete.
        **({"settled_ms": 0} if file == mill.home.started_config else {}),
    }


def collector_wish(mill: Mill) -> dict[str, Any]:
    """Return the part of the collector's settings that can change while it runs."""
    config = mill.config
    names = [topic.name for topic in config.topics if config.collector.may_write(topic.name)]
    return {
        "section": config.collector.model_dump(mode="json", by_alias=True),
        "topics": topics_for(config, tuple(dict.fromkeys((*config.collector.topics, *names)))),
    }


def stream_settings(mill: Mill, part: str = "stream") -> dict[str, Any]:
    """Return the stream's settings, with the database user that may write counts."""
    config, file = mill.config, str(mill.home.config_file)
    java = find_java()
    return {
        **stream_wish(mill),
        "part": part,
        "sinks": sinks_settings(mill, SINK_USER, "stream"),
        "bootstrap_servers": bootstrap_servers(config, mill.placement),
        "security": security_settings(mill),
        "data_dir": str(mill.home.part_data(part)),
        "home": str(mill.home.folder),
        "jars": [str(path) for path in jar_paths(mill.home.jars)],
        "java_home": str(java.home) if java else None,
        "class_data_archive": _class_data(java),
        "status": {"host": mill.placement.bind_host, "port": config.ports.stream},
        "reload": {
            "file": file,
            "command": [*WISH, file, "wish"],
            "sha256": mill.sha256,
        },
    }


def stream_wish(mill: Mill) -> dict[str, Any]:
    """Return the part of the stream's settings that can change while it runs."""
    return {
        "section": mill.config.stream.model_dump(mode="json", by_alias=True),
        "topics": topics_for(mill.config, mill.config.stream.topics),
    }


def security_settings(mill: Mill) -> dict[str, Any] | None:
    """Return `cluster.security` with absolute paths; None if the cluster is entered without TLS.

    If the password is in a file of its own, the settings have only its path, so a changed password
    restarts no part.
    """
    stated = mill.config.cluster.security
    if stated is None:
        return None
    kept = stated.password_file is not None
    return {
        "ca": None if stated.ca is None else str(mill.home.folder / stated.ca),
        "user": stated.user,
        "password": None if kept else _revealed(stated.password),
        "password_file": stated.password_file,
        "mechanism": stated.mechanism,
    }


def stream_check_settings(mill: Mill) -> dict[str, Any]:
    """Return the settings for a check of the stream's expressions. They contain no secrets and no
    addresses."""
    java = find_java()
    return {
        "section": mill.config.stream.model_dump(mode="json", by_alias=True),
        "sinks": {"mysql": None, "redis": None},
        "bootstrap_servers": "",
        "data_dir": str(mill.home.part_data("stream")),
        "java_home": str(java.home) if java else None,
        "class_data_archive": _class_data(java),
    }


def _class_data(java: JavaRuntime | None) -> str | None:
    path = archive_path(java)
    return None if path is None else str(path)


def monitor_settings(mill: Mill, part: str = "monitor") -> dict[str, Any]:
    """Return the monitor's settings. The monitor reads everything, and changes the cluster only if
    the configuration allows it."""
    config, file = mill.config, mill.home.config_file
    section = config.monitor.model_dump(mode="json", by_alias=True, exclude={"proxy_secret"})
    for name in ("webhook", "token"):
        section["alerts"][name] = _revealed(getattr(config.monitor.alerts, name))
    if mill.placement.in_containers:
        section["listen"] = f"{mill.placement.bind_host}:{monitor_port(config)}"
    return {
        **monitor_wish(mill),
        "part": part,
        "section": section,
        "bootstrap_servers": bootstrap_servers(config, mill.placement),
        "security": security_settings(mill),
        "data_dir": str(mill.home.part_data(part)),
        "parts": {
            other.name: f"http://{other.address}"
            for other in mill.parts
            if other.probe is ProbeKind.HTTP and other.name != part
        },
        "sinks": sinks_settings(mill, READER, part),
        "token": read_secret(mill.home, f"{part}/admin") if config.monitor.admin else None,
        "supervisor": None if mill.placement.in_containers else str(mill.home.socket),
        **page_settings(mill.home, config),
        "reload": _reload(mill, "--monitor"),
        "preview": {
            "folder": str(mill.home.folder / "watched"),
            "command": [*WISH, str(file), "detect", "--json"],
        }
        if config.monitor.messages
        else None,
    }


def monitor_wish(mill: Mill) -> dict[str, Any]:
    """Return the part of the monitor's settings that can change while it runs."""
    config = mill.config
    return {
        "inputs": [
            {"paths": list(one.paths), "topic": one.topic} for one in config.collector.inputs
        ],
        "metrics": [
            {
                "name": one.name,
                "inputs": list(one.from_),
                "key": list(one.key),
                "measure": one.measure,
                "value": one.value,
                "top": one.top,
            }
            for one in config.stream.metrics
        ],
    }


def sinks_settings(mill: Mill, user: str, secrets_of: str) -> dict[str, Any]:
    """Return the settings for connecting to MySQL and Redis as `user`.

    `secrets_of` is the part whose secrets are used. The user `reader` of Redis has no password,
    because every account of this machine may read the mill's keys.
    """
    sinks, home = mill.config.sinks, mill.home
    found: dict[str, Any] = {"mysql": None, "redis": None}
    if sinks.mysql is not None:
        server = mill.part("mysql")
        if server is not None:
            found["mysql"] = {
                "host": server.host,
                "port": server.port,
                "user": user,
                "password": read_secret(home, f"{secrets_of}/mysql"),
                "database": DATABASE,
                "reader": READER,
            }
        else:
            found["mysql"] = {
                "host": sinks.mysql.host,
                "port": sinks.mysql.port or 3306,
                "user": sinks.mysql.user or user,
                "password": _revealed(sinks.mysql.password) or "",
                "database": sinks.mysql.database or DATABASE,
                "reader": None,
            }
    if sinks.redis is not None:
        server = mill.part("redis")
        writes = user == SINK_USER
        if server is not None:
            found["redis"] = {
                "host": server.host,
                "port": server.port,
                "username": SINK_USER if writes else READER,
                "password": read_secret(home, f"{secrets_of}/redis") if writes else READER,
            }
        else:
            found["redis"] = {
                "host": sinks.redis.host,
                "port": sinks.redis.port or 6379,
                "username": sinks.redis.username,
                "password": _revealed(sinks.redis.password),
            }
    return found


def _revealed(secret: SecretStr | None) -> str | None:
    return None if secret is None else secret.get_secret_value()


def topics_for(config: MillConfig, names: tuple[str, ...]) -> list[dict[str, Any]]:
    """Return the names and settings of the topics that a part creates."""
    listed = {topic.name: topic for topic in config.topics}
    found = []
    for name in names:
        topic = listed.get(name)
        found.append(
            {
                "name": name,
                "partitions": topic.partitions if topic else None,
                "replication": topic.replication if topic else None,
                "settings": _settings_text(topic.settings) if topic else {},
            }
        )
    return found


def _settings_text(settings: dict[str, Scalar]) -> dict[str, str]:
    """Return each value in Kafka's spelling. Unknown keys belong to an existing cluster and are
    kept."""
    if not check_topic_settings(settings):
        return topic_settings_text(settings)
    return {
        key: str(value).lower() if isinstance(value, bool) else str(value)
        for key, value in settings.items()
    }
