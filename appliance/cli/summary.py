"""The last lines of `up`: where to put logs, and where to read."""

from pathlib import Path

from appliance.checks import opened
from appliance.mill.init import READERS
from appliance.mill.parts import BROKER_PREFIX, net_addresses, page_url
from appliance.mill.settings import Mill
from appliance.mill.sinks import READER, socket_of


def summary(mill: Mill) -> list[str]:
    """Return lines that name the addresses of the mill and the command that stops it."""
    config = mill.config
    lines = []
    for paths in config.collector.inputs:
        lines.append(f"  drop logs into   {', '.join(paths.paths)}  (topic {paths.topic})")
    if mill.part("monitor"):
        lines.append(f"  page             {page_url(config)}")
    lines += _server_lines(mill)
    brokers = [part for part in mill.parts if part.name.startswith(BROKER_PREFIX)]
    if config.cluster.hosts is not None:
        addresses = ",".join(net_addresses(config).values())
        lines.append(f"  Kafka clients    bootstrap.servers={addresses} (TLS and login)")
    elif brokers:
        addresses = ",".join(
            f"127.0.0.1:{port}"
            for part in brokers
            for setting, port in part.ports
            if setting == "ports.host"
        )
        lines.append(f"  Kafka clients    bootstrap.servers={addresses}")
    if text := opened.opened_text(mill):
        lines.append(f"  other machines   {text}")
    lines.append(f"  data, logs       {mill.home.data}, {mill.home.logs}")
    lines.append("  stop             make down")
    return lines


def _server_lines(mill: Mill) -> list[str]:
    """Return how to read from Redis and MySQL: on this machine, and from others if they are
    open."""
    home, ports = mill.home, mill.config.ports
    mysql = "database millrace, user reader, password in"
    secret = _below(home.secrets / "mysql" / READER, home.folder)
    closed = {
        "redis": f"redis-cli -p {ports.redis} (keys mill:*, no password)",
        "mysql": f"127.0.0.1:{ports.mysql}, {mysql} {secret}",
    }
    lines = []
    for title, name in (("Redis", "redis"), ("MySQL", "mysql")):
        part = mill.part(name)
        if part is None:
            continue
        path = socket_of(home, part)
        if path is None:
            lines.append(f"  {title}            {closed[name]}")
            continue
        readers = _below(home.secrets / READERS / name, home.folder)
        at = _below(Path(path), home.folder)
        own = f"--socket={at} --user=reader -p millrace, password in {secret}"
        here = {"redis": f"redis-cli -s {at} --user reader --askpass", "mysql": f"mysql {own}"}
        lines.append(f"  {title}            {here[name]}")
        lines.append(
            f"                   with TLS: port {part.port}, data/ca.pem, user reader, password in"
            f" {readers}"
        )
    return lines


def _below(path: Path, folder: Path) -> str:
    return str(path.relative_to(folder)) if path.is_relative_to(folder) else str(path)
