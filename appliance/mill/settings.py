"""The settings of each part's process: its section of the file, with addresses and secrets added.

A part gets exactly the settings that it needs, as one JSON object on an inherited descriptor. A
part never reads the configuration file, and its arguments and environment contain no secrets.
"""

import json
import sys
from dataclasses import dataclass
from typing import Any

from appliance.config.model import MillConfig, Scalar
from appliance.machine.java import JavaRuntime, find_java
from appliance.mill.broker_settings import settings_of_broker
from appliance.mill.class_data import archive_path
from appliance.mill.home import Home
from appliance.mill.hosts import of_this_host, place
from appliance.mill.init import ENTRY_PASSWORD, read_secret
from appliance.mill.page_settings import page_settings
from appliance.mill.parts import (
    ENTRY_MECHANISM,
    ENTRY_USER,
    Part,
    Placement,
    ProbeKind,
    bootstrap_servers,
    monitor_port,
    parts_of,
)
from appliance.mill.sinks import READER, SINK_USER, revealed, settings_of_sinks
from appliance.mill.tls_paths import client_trust
from broker.config import check_topic_settings, topic_settings_text
from stream.spark.jars import jar_paths

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

    @classmethod
    def of(
        cls,
        home: Home,
        config: MillConfig,
        *,
        in_containers: bool = False,
        sha256: str | None = None,
    ) -> "Mill":
        """Return the mill as this machine has it. `config` is the whole content of the file. Raises
        HostRecordFault."""
        placement = place(home, config, in_containers=in_containers)
        return cls(home, of_this_host(config, placement), placement, sha256)

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


def broker_settings(mill: Mill, part: str) -> dict[str, Any]:
    return settings_of_broker(mill.home, mill.config, mill.placement, part)


def encode_settings(settings: dict[str, Any]) -> bytes:
    """Encode the settings for the descriptor."""
    return json.dumps(settings, separators=(",", ":")).encode()


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
    restarts no part. If the mill's own brokers are on several hosts, its parts enter them as a user
    of their own.
    """
    if mill.config.cluster.hosts is not None:
        return {
            "ca": client_trust(mill.home, mill.config.network),
            "user": ENTRY_USER,
            "password": None,
            "password_file": str(mill.home.secrets / ENTRY_PASSWORD),
            "mechanism": ENTRY_MECHANISM,
        }
    stated = mill.config.cluster.security
    if stated is None:
        return None
    kept = stated.password_file is not None
    return {
        "ca": None if stated.ca is None else str(mill.home.folder / stated.ca),
        "user": stated.user,
        "password": None if kept else revealed(stated.password),
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
        section["alerts"][name] = revealed(getattr(config.monitor.alerts, name))
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
    """Return the settings for connecting to MySQL and Redis as `user`, with the secrets of the part
    `secrets_of`."""
    return settings_of_sinks(mill.home, mill.config, mill.placement, user, secrets_of)


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
