"""Each part gets complete settings that its own model accepts, and no secret that it does not
need."""

import json
import os
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest

from appliance.config.load import load_text
from appliance.launch.run import UnknownPart, become, settings_descriptor
from appliance.mill.entry import cluster_entry
from appliance.mill.home import find_home
from appliance.mill.init import initialise, read_secret
from appliance.mill.parts import Placement
from appliance.mill.settings import Mill, encode_settings, settings_for, stream_check_settings
from broker.config import BrokerConfig
from collector.config.settings import CollectorSettings
from monitor.config.settings import MonitorSettings
from protocol.security.cluster_security import ClusterEntry, ClusterSecurity
from sinks.config import SinkTls
from stream.config.settings import StreamSettings
from tests.harness.certificates import new_test_authority

SHIPPED = (Path(__file__).parents[3] / "configs" / "millrace.yaml").read_text()
BROKERS = ("broker-1", "broker-2", "broker-3")


def mill(tmp_path: Path, text: str = SHIPPED, *, in_containers: bool = False) -> Mill:
    home = find_home({"MILLRACE_HOME": str(tmp_path)})
    config = load_text(text, "mill.yaml", tmp_path, {}).config
    initialise(home, (1, 2, 3))
    return Mill(home, config, Placement(in_containers))


def as_sent(of: Mill, part: str) -> dict[str, object]:
    """Return the settings as the part reads them from its descriptor."""
    settings: dict[str, object] = json.loads(encode_settings(settings_for(of, part)))
    return settings


def test_the_shipped_file_asks_for_these_parts_in_this_order(tmp_path: Path) -> None:
    parts = mill(tmp_path).parts
    by_rank: dict[int, set[str]] = {}
    for part in parts:
        by_rank.setdefault(part.start_rank, set()).add(part.name)
    assert by_rank == {
        0: {"mysql", "redis", "broker-1", "broker-2", "broker-3", "monitor"},
        1: {"collector", "stream"},
    }
    stops = {part.name: part.stop_rank for part in parts}
    assert stops["collector"] < stops["stream"] < stops["broker-1"] < stops["mysql"]
    assert stops["redis"] == stops["mysql"]


def test_the_addresses_are_those_of_the_surface(tmp_path: Path) -> None:
    addresses = {part.name: part.address for part in mill(tmp_path).parts}
    assert addresses == {
        "mysql": "127.0.0.1:3307",
        "redis": "127.0.0.1:6380",
        "broker-1": "127.0.0.1:8093",
        "broker-2": "127.0.0.1:8094",
        "broker-3": "127.0.0.1:8095",
        "collector": "127.0.0.1:8091",
        "stream": "127.0.0.1:8092",
        "monitor": "127.0.0.1:8090",
    }


@pytest.mark.parametrize("in_containers", [False, True])
def test_every_part_accepts_its_settings(tmp_path: Path, in_containers: bool) -> None:
    of = mill(tmp_path, in_containers=in_containers)
    config = BrokerConfig.from_json(as_sent(of, "broker-1"))
    assert (config.listeners["HOST"].port, config.listeners["MILL"].port) == (9092, 19092)
    assert config.num_partitions == 3
    for model, part in (
        (CollectorSettings, "collector"),
        (StreamSettings, "stream"),
        (MonitorSettings, "monitor"),
    ):
        parsed = model.model_validate(as_sent(of, part))
        assert parsed.part == part
        hosts = BROKERS if in_containers else ["127.0.0.1"] * 3
        expected = ",".join(f"{host}:{19092 + index}" for index, host in enumerate(hosts))
        assert parsed.bootstrap_servers == expected


def test_a_collector_knows_what_is_listed_for_topics_that_its_templates_may_make(
    tmp_path: Path,
) -> None:
    text = (
        "collector: {inputs: [{paths: ['watched/*/*'], topic: 'logs.{1}'},"
        " {paths: ['other/*'], topic: fixed}]}\n"
        "topics: [{name: logs.web, partitions: 6}, {name: else, partitions: 2}]\n"
    )
    found = CollectorSettings.model_validate(as_sent(mill(tmp_path, text), "collector"))
    assert [(one.name, one.partitions) for one in found.topics] == [
        ("fixed", None),
        ("logs.web", 6),
    ]


def test_the_sections_survive_the_way(tmp_path: Path) -> None:
    of = mill(tmp_path)
    stream = StreamSettings.model_validate(as_sent(of, "stream"))
    assert stream.section == of.config.stream
    collector = CollectorSettings.model_validate(as_sent(of, "collector"))
    assert collector.section == of.config.collector
    assert collector.home == str(tmp_path)
    assert [topic.name for topic in collector.topics] == ["logs.access", "logs.json", "logs.text"]
    assert collector.topics[0].settings == {"retention.ms": "604800000"}


def test_containers_listen_everywhere_and_are_called_by_name(tmp_path: Path) -> None:
    of = mill(tmp_path, in_containers=True)
    listeners = as_sent(of, "broker-1")["listeners"]
    assert isinstance(listeners, dict)
    assert listeners["HOST"] == {
        "host": "0.0.0.0",
        "port": 9092,
        "advertised_host": "127.0.0.1",
        "advertised_port": 9092,
    }
    assert listeners["MILL"]["advertised_host"] == "broker-1"
    stream = StreamSettings.model_validate(as_sent(of, "stream"))
    assert stream.sinks.redis is not None
    assert stream.sinks.mysql is not None
    assert (stream.sinks.redis.host, stream.sinks.redis.port) == ("redis", 6379)
    assert (stream.sinks.mysql.host, stream.sinks.mysql.port) == ("mysql", 3306)
    monitor = MonitorSettings.model_validate(as_sent(of, "monitor"))
    assert monitor.section.listen == "0.0.0.0:8090"
    assert monitor.parts["stream"] == "http://stream:8092"


def test_without_containers_everything_is_on_loopback(tmp_path: Path) -> None:
    of = mill(tmp_path)
    for part in ("broker-1", "collector", "stream", "monitor"):
        assert "0.0.0.0" not in json.dumps(as_sent(of, part))


@pytest.mark.parametrize("in_containers", [False, True])
def test_pitfall_41_clients_outside_are_given_an_address_of_ipv4_not_a_name(
    tmp_path: Path, in_containers: bool
) -> None:
    """librdkafka may try `localhost` by IPv6 first. No broker listens there."""
    listeners: Any = as_sent(mill(tmp_path, in_containers=in_containers), "broker-1")["listeners"]
    assert ip_address(listeners["HOST"]["advertised_host"]) == ip_address("127.0.0.1")


def test_who_gets_which_secret(tmp_path: Path) -> None:
    of = mill(tmp_path)
    secrets = {
        name: read_secret(of.home, name)
        for name in ("mysql/root", "mysql/mill", "mysql/reader", "redis/password")
    }
    holders = {
        part: {name for name, secret in secrets.items() if secret in json.dumps(as_sent(of, part))}
        for part in ("broker-1", "collector", "stream", "monitor")
    }
    assert holders == {
        "broker-1": set(),
        "collector": set(),
        "stream": {"mysql/mill", "redis/password"},
        "monitor": {"mysql/reader"},
    }
    assert not any(secret in json.dumps(stream_check_settings(of)) for secret in secrets.values())


def test_the_monitor_is_told_a_token_only_where_it_may_change_something(tmp_path: Path) -> None:
    assert as_sent(mill(tmp_path), "monitor")["token"] is None
    allowed = SHIPPED.replace("\nmonitor:\n", "\nmonitor:\n  admin: true\n")
    told = as_sent(of := mill(tmp_path, allowed), "monitor")
    assert told["token"] == read_secret(of.home, "monitor/admin")
    settings = MonitorSettings.model_validate(told)
    assert settings.section.admin
    assert str(told["token"]) not in repr(mill(tmp_path, allowed).config)


def test_external_servers_are_used_and_not_run(tmp_path: Path) -> None:
    authority = new_test_authority(tmp_path)
    of = mill(
        tmp_path,
        "cluster: {bootstrap_servers: 'k1:9092,k2:9092'}\n"
        "topics: [{name: logs.access, settings: {some.new.key: true}}]\n"
        "sinks:\n  redis: {host: r, password: rp, tls: {}}\n"
        "  mysql: {host: m, port: 3310, user: u, tls: {ca: ca.pem}}\n"
        "stream:\n  from: {a: {topic: logs.access, format: common}}\n"
        "  metrics: [{name: n, from: a, measure: count}]\n",
    )
    assert {part.name for part in of.parts} == {"collector", "stream", "monitor"}
    stream = StreamSettings.model_validate(as_sent(of, "stream"))
    assert stream.bootstrap_servers == "k1:9092,k2:9092"
    assert stream.sinks.redis is not None
    assert stream.sinks.mysql is not None
    assert (stream.sinks.redis.host, stream.sinks.redis.port) == ("r", 6379)
    assert stream.sinks.redis.password == "rp"
    assert (stream.sinks.mysql.host, stream.sinks.mysql.port) == ("m", 3310)
    assert stream.sinks.mysql.user == "u"
    assert stream.sinks.redis.tls == SinkTls()
    assert stream.sinks.mysql.tls == SinkTls(ca=str(authority.file))
    assert stream.topics[0].settings == {"some.new.key": "true"}


def test_a_sink_that_is_off_is_none(tmp_path: Path) -> None:
    of = mill(tmp_path, "sinks: {mysql: null}")
    assert {part.name for part in of.parts} == {"redis", "broker-1", "collector", "monitor"}
    monitor = MonitorSettings.model_validate(as_sent(of, "monitor"))
    assert monitor.sinks is not None
    assert monitor.sinks.mysql is None


def test_a_part_that_is_not_configured_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnknownPart, match="broker-1, collector"):
        become(mill(tmp_path, "sinks: {mysql: null}"), "mysql")


def test_the_descriptor_gives_the_settings_once_and_lies_on_no_disk() -> None:
    descriptor = settings_descriptor(b'{"a": 1}')
    try:
        assert os.get_inheritable(descriptor)
        assert os.readlink(f"/proc/self/fd/{descriptor}").startswith("/memfd:")
        with os.fdopen(os.dup(descriptor), "rb") as file:
            assert json.load(file) == {"a": 1}
    finally:
        os.close(descriptor)


def test_home_follows_the_environment(tmp_path: Path) -> None:
    assert find_home({}).folder == find_home({}).code
    moved = find_home({"MILLRACE_HOME": str(tmp_path)})
    assert moved.config_file == tmp_path / "configs" / "millrace.yaml"
    named = find_home({"MILLRACE_HOME": str(tmp_path), "MILLRACE_CONFIG": str(tmp_path / "x.yaml")})
    assert named.config_file == tmp_path / "x.yaml"
    assert find_home({}, tmp_path / "y.yaml").config_file == tmp_path / "y.yaml"


SECURED = """
cluster:
  bootstrap_servers: mill.example.org:9192
  security: {{ca: ca.pem, user: collector.web-7, password: "{password}"}}
"""


@pytest.mark.parametrize(
    ("password", "sent", "kept"),
    [("${file:secret}", None, "secret"), ("of-${file:secret}", "of-hidden-1", None)],
)
def test_parts_enter_a_secured_cluster(
    tmp_path: Path, password: str, sent: str | None, kept: str | None
) -> None:
    """A password in a file of its own is not in the settings, because parts read it there."""
    new_test_authority(tmp_path)
    (tmp_path / "secret").write_text("hidden-1\n")
    of = mill(tmp_path, SECURED.format(password=password))
    expected = ClusterSecurity(
        ca=str(tmp_path / "ca.pem"),
        user="collector.web-7",
        password=sent,
        password_file=None if kept is None else str(tmp_path / kept),
    )
    for model, part in (
        (CollectorSettings, "collector"),
        (StreamSettings, "stream"),
        (MonitorSettings, "monitor"),
    ):
        assert model.model_validate(as_sent(of, part)).security == expected
    assert cluster_entry(of) == ClusterEntry("mill.example.org:9192", expected)
    assert "hidden" not in repr(expected)
