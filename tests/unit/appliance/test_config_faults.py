"""Every kind of fault in the configuration file: its place, and its message."""

from pathlib import Path

import pytest

from appliance.config.faults import ConfigFaults
from appliance.config.load import load, load_text

SHIPPED = Path(__file__).parents[3] / "configs" / "millrace.yaml"


def faults_of(text: str, environ: dict[str, str] | None = None) -> list[str]:
    with pytest.raises(ConfigFaults) as raised:
        load_text(text, "mill.yaml", Path("/nowhere"), environ or {})
    return [str(fault) for fault in raised.value.faults]


TABLE = [
    (
        "cluster: {security: {}}",
        "mill.yaml:1:21: cluster.security: found no cluster.bootstrap_servers beside it",
        "the addresses of the cluster to enter",
    ),
    (
        "cluster: {bootstrap_servers: 'a:1', security: {user: mill}}",
        "mill.yaml:1:54: cluster.security.user: found 'mill'",
        "expected password beside it",
    ),
    (
        "cluster: {bootstrap_servers: 'a:1', security: {password: long-enough-1}}",
        "mill.yaml:1:58: cluster.security.password: found no user beside it",
        "or no password: TLS alone",
    ),
    (
        "cluster: {bootstrap_servers: 'a:1', security: {user: mill, password: ''}}",
        "mill.yaml:1:70: cluster.security.password: found an empty text",
        "the password of the user",
    ),
    (
        "cluster: {bootstrap_servers: 'a:1', security: {mechanism: PLAIN}}",
        "mill.yaml:1:59: cluster.security.mechanism: found 'PLAIN'",
        "'SCRAM-SHA-512' or 'SCRAM-SHA-256'",
    ),
    (
        "cluster: {bootstrap_servers: 'a:1', security: {ca: nothing.pem}}",
        "mill.yaml:1:52: cluster.security.ca: found 'nothing.pem' (No such file or directory)",
        "a file of CAs in PEM format",
    ),
    (
        "cluster: {bootstrap_servers: 'a:1', security: {ca: /dev/null}}",
        "mill.yaml:1:52: cluster.security.ca: found '/dev/null' (no certificate or crl found)",
        "a file of CAs in PEM format",
    ),
    (
        "network: {open: [kafka]}",
        "mill.yaml:1:17: network.open: found [kafka] without network.names",
        "the names or addresses that clients dial",
    ),
    (
        "network: {open: [kafka], names: [localhost], listen: mill.example.org}",
        "mill.yaml:1:54: network.listen: found 'mill.example.org'",
        "an IP address of this machine, or 0.0.0.0",
    ),
    (
        "network: {open: [kafka], names: ['mill:9192']}",
        "mill.yaml:1:34: network.names[0]: found 'mill:9192'",
        "a host name or an IP address that clients can dial, without a port",
    ),
    (
        "network: {open: [gate]}",
        "mill.yaml:1:18: network.open[0]: found 'gate'",
        "kafka, page, redis or mysql: nothing else can be opened yet",
    ),
    (
        "network: {open: [kafka], names: [localhost], login: everybody}",
        "mill.yaml:1:53: network.login: found 'everybody'",
        "'users'",
    ),
    (
        "security: {super_users: [admin, 'a b']}",
        "mill.yaml:1:25: security.super_users: found 'a b'",
        "1 to 64 letters, digits, dots",
    ),
    (
        "security: {super_users: [admin]}\ncluster: {settings: {super.users: 'User:shop'}}",
        "mill.yaml:2:35: cluster.settings.super.users: found 'User:shop' beside"
        " security.super_users",
        "only one of the two: keep security.super_users, and remove this key",
    ),
    # Pitfall 21: an operator who switches logins on is not locked out (Redpanda's documentation).
    (
        "network: {open: [kafka], names: [localhost], login: users}\nsecurity: {super_users: []}",
        "mill.yaml:2:25: security.super_users: found no user, beside network.login: users",
        "at least one user",
    ),
    (
        "network: {open: [kafka], names: [localhost], login: users}\n"
        "cluster: {settings: {super.users: ''}}",
        "mill.yaml:2:35: cluster.settings.super.users: found no user",
        "at least one user",
    ),
    (
        "network: {tls: {certificate: mill.pem}}",
        "mill.yaml:1:30: network.tls.certificate: found no key beside it",
        "both certificate and key, or none",
    ),
    (
        "network: {tls: {ca: ca.pem}}",
        "mill.yaml:1:21: network.tls.ca: found no certificate beside it",
        "certificate and key as well, or none of the three: the mill's own certificates",
    ),
    (
        "network: {open: [kafka], names: [a]}\ncluster: {bootstrap_servers: 'a:1'}",
        "mill.yaml:1:17: network.open: found [kafka]",
        "the brokers of cluster.bootstrap_servers are not this mill's",
    ),
    # The text of the file, the beginning of its only fault, and a word from the rest of the
    # message.
    ("stream: {trigr: 100ms}", "mill.yaml:1:10: stream.trigr: found", "did you mean trigger?"),
    ("colector: {}", "mill.yaml:1:1: colector: found", "did you mean collector?"),
    ("cluster: {brokers: many}", "mill.yaml:1:20: cluster.brokers: found 'many'", "or a list"),
    (
        "cluster: {brokers: 2}",
        "mill.yaml:1:20: cluster.brokers: found 2",
        "expected 1 or 3: of two",
    ),
    ("cluster: {brokers: 5}", "mill.yaml:1:20: cluster.brokers: found 5", "1 or 3, or a list"),
    (
        "cluster: {brokers: 3, racks: [a, b]}",
        "mill.yaml:1:30: cluster.racks: found 2 of them",
        "expected a rack for each broker: 3, or none",
    ),
    (
        "cluster: {brokers: 1, racks: ['']}",
        "mill.yaml:1:31: cluster.racks[0]: found ''",
        "expected the name of a rack",
    ),
    ("cluster: {brokers: 0}", "mill.yaml:1:20: cluster.brokers: found 0", "expected 1 or 3 ("),
    (
        "cluster: {settings: {default.replication.factor: 3}}",
        "mill.yaml:1:50: cluster.settings.default.replication.factor: found 3",
        "at most the number of brokers, 1",
    ),
    (
        "cluster: {brokers: 3, settings: {offsets.topic.replication.factor: '4'}}",
        "mill.yaml:1:68: cluster.settings.offsets.topic.replication.factor: found '4'",
        "at most the number of brokers, 3",
    ),
    (
        "cluster: {settings: {min.insync.replicas: 3}}",
        "mill.yaml:1:43: cluster.settings.min.insync.replicas: found 3",
        "at most the number of brokers, 1",
    ),
    (
        "cluster: {brokers: 3, settings: {default.replication.factor: 1, min.insync.replicas: 2}}",
        "mill.yaml:1:86: cluster.settings.min.insync.replicas: found 2",
        "at most default.replication.factor, which is 1",
    ),
    (
        "cluster: {brokers: 3, settings: {transaction.state.log.replication.factor: 1,"
        " transaction.state.log.min.isr: 2}}",
        "mill.yaml:1:110: cluster.settings.transaction.state.log.min.isr: found 2",
        "at most transaction.state.log.replication.factor, which is 1",
    ),
    (
        "cluster: {brokers: 3}\ntopics: [{name: a, replication: 4}]",
        "mill.yaml:2:33: topics[0].replication: found 4",
        "at most the number of brokers, 3",
    ),
    (
        "cluster: {brokers: 3}\n"
        "topics: [{name: a, replication: 1, settings: {min.insync.replicas: 2}}]",
        "mill.yaml:2:68: topics[0].settings.min.insync.replicas: found 2",
        "at most the topic's replicas, 1",
    ),
    (
        "cluster: {brokers: 3}\nports: {mill: 19091, broker: 19093}",
        "mill.yaml:2:30: ports.broker: found 19093",
        "ports.mill has it",
    ),
    (
        "cluster:\n  settings:\n    num.partitons: 3",
        "mill.yaml:3:20: cluster.settings.num.partitons: found 3",
        "num.partitions",
    ),
    (
        "cluster: {settings: {num.partitions: none}}",
        "mill.yaml:1:38: cluster.settings.num.partitions: found 'none'",
        "expected",
    ),
    (
        "cluster: {bootstrap_servers: kafka}",
        "mill.yaml:1:30: cluster.bootstrap_servers: found 'kafka'",
        "host:port",
    ),
    (
        "topics:\n  - {name: a}\n  - {name: a}",
        "mill.yaml:3:12: topics[1].name: found 'a' a second time",
        "topics[0]",
    ),
    ("topics: [{name: 'a b'}]", "mill.yaml:1:17: topics[0].name: found 'a b'", "topic name"),
    (
        "topics: [{name: a, settings: {retention: 1}}]",
        "mill.yaml:1:42: topics[0].settings.retention: found 1",
        "expected",
    ),
    (
        "topics: [{name: a, replication: 3}]",
        "mill.yaml:1:33: topics[0].replication: found 3",
        "number of brokers, 1",
    ),
    (
        "collector: {inputs: [{paths: [a], topic: t}, {paths: [b, a], topic: u}]}",
        "mill.yaml:1:58: collector.inputs[1].paths[1]: found 'a' a second time",
        "inputs[0]",
    ),
    (
        "collector: {inputs: [{topic: t}]}",
        "mill.yaml:1:22: collector.inputs[0].paths: found nothing",
        "this key is required",
    ),
    (
        "collector: {compression: gzipp}",
        "mill.yaml:1:26: collector.compression: found 'gzipp'",
        "'gzip'",
    ),
    (
        "stream: {from: {a: {topic: logs.acess, format: common}}}",
        "mill.yaml:1:28: stream.from.a.topic: found 'logs.acess'",
        "did you mean logs.access?",
    ),
    (
        "stream: {from: {a: {topic: logs.access, format: comon}}}",
        "mill.yaml:1:49: stream.from.a.format: found 'comon'",
        "'common'",
    ),
    (
        "stream:\n  from: {a: {topic: logs.access, format: common}}\n"
        "  metrics:\n    - {name: m, from: a, measure: count, key: stats}",
        "mill.yaml:4:47: stream.metrics[0].key: found unknown column 'stats'",
        "status",
    ),
    (
        "collector: {inputs: [{paths: ['w/a'], topic: 'logs.{1}'}]}",
        "mill.yaml:1:22: collector.inputs[0]: found 0 wildcards in 'w/a'",
        "at least 1 for the topic 'logs.{1}'",
    ),
    (
        "collector: {inputs: [{paths: [w], topic: t, headers: {millrace.a: b}}]}",
        "mill.yaml:1:54: collector.inputs[0].headers: found 'millrace.a'",
        "does not begin with 'millrace.'",
    ),
    ("monitor: {listen: '0.0.0.0:80'}", "mill.yaml:1:19: monitor.listen: found", "loopback"),
    ("monitor: {listen: 'example.org:80'}", "mill.yaml:1:19: monitor.listen: found", "loopback"),
    ("sinks: {redis: null, mysql: null}", "mill.yaml:1:8: sinks: found redis: null", "one sink"),
    ("ports: {redis: 9092}", "mill.yaml:1:16: ports.redis: found 9092", "ports.host has it"),
    ("ports: {redis: 70000}", "mill.yaml:1:16: ports.redis: found 70000", "65535"),
    ("cluster: 3", "mill.yaml:1:10: cluster: found 3", "a mapping"),
    ("topics: {}", "mill.yaml:1:9: topics: found an empty mapping", "a list"),
    ("cluster: {brokers: 1, brokers: 1}", "mill.yaml:1:23: cluster.brokers: found", "once"),
    ("cluster: {brokers: 1", "mill.yaml:1:21: (YAML): found", "expected"),
    ("cluster:\n\tbrokers: 1", "mill.yaml:2:1: (YAML): found character", "YAML"),
    ("- a", "mill.yaml:1:1: (the file): found no mapping", "sections"),
    ("cluster: !!python/object:os.system {}", "mill.yaml:1:10: cluster: found the tag", "plain"),
    ("a: &a [*a]", "mill.yaml:1:4: a: found values nested", "plain file"),
    (
        "monitor: {listen: '${NOT_SET}'}",
        "mill.yaml:1:19: monitor.listen: found ${NOT_SET}, which is not set",
        "environment variable",
    ),
    (
        "monitor: {listen: '${file:no/such}'}",
        "mill.yaml:1:19: monitor.listen: found ${file:no/such} (No such file",
        "can be read",
    ),
    ("monitor: {listen: '${a b}'}", "mill.yaml:1:19: monitor.listen: found ${a b}", "$${"),
]


@pytest.mark.parametrize(("text", "beginning", "word"), TABLE, ids=[row[0][:50] for row in TABLE])
def test_a_fault_is_told_with_its_place(text: str, beginning: str, word: str) -> None:
    found = faults_of(text)
    matching = [fault for fault in found if fault.startswith(beginning)]
    assert matching, found
    assert word in matching[0]


def test_every_fault_is_told_at_once() -> None:
    found = faults_of(
        "cluster: {brokers: 2}\n"
        "stream: {trigr: 1s, master: 17}\n"
        "collector: {compression: rar}\n"
        "monitor: {listen: '0.0.0.0:8090'}\n"
        "ports: {redis: 9092}\n"
    )
    assert [fault.split(": ")[1] for fault in found] == [
        "cluster.brokers",
        "stream.trigr",
        "stream.master",
        "collector.compression",
        "monitor.listen",
        "ports.redis",
    ]


def test_a_section_with_faults_causes_no_others() -> None:
    """While the collector's inputs have faults, their topics are unknown. So the missing topic in
    `stream.from` must not be reported as a second fault."""
    found = faults_of(
        "collector: {inputs: [{paths: x, topic: mine}]}\n"
        "stream: {from: {a: {topic: mine, format: raw}}}\n"
    )
    assert len(found) == 1
    assert "collector.inputs[0].paths" in found[0]


def test_a_fault_hides_no_fault_of_another_key() -> None:
    """Each section has several faults of different kinds, and all are reported."""
    found = faults_of(
        "cluster: {brokers: 1, settings: {log.retention.hours: x}}\n"
        "collector: {compression: rar}\n"
        "ports: {redis: 9092, mysql: x}\n"
        "stream:\n"
        "  trigger: 5\n"
        "  archive: {folder: watched/access/old, every: 1}\n"
        "  from:\n"
        "    a: {topic: logs.access, format: combined, tz: Mars}\n"
        "    b: {topic: logs.json, format: json, columns: {x: strnig y, y: a nit, z: int}}\n"
        "    c: {topic: logs.text, format: raw}\n"
        "  metrics:\n"
        "    - {name: m, from: a, measure: count}\n"
        "    - {name: n, from: c, measure: count, key: nothing, where: lowr(line) = 'a'}\n"
        "    - {name: o, from: d, measure: sum}\n"
    )
    assert [fault.split(": ")[1] for fault in found] == [
        "cluster.settings.log.retention.hours",
        "collector.compression",
        "ports.redis",
        "ports.mysql",
        "stream.trigger",
        "stream.archive.folder",
        "stream.archive.every",
        "stream.from.a.tz",
        "stream.from.b.columns.x",
        "stream.from.b.columns.y",
        "stream.metrics[1].key",
        "stream.metrics[1].where",
        "stream.metrics[2].value",
        "stream.metrics[2].from",
    ]


def test_a_metric_without_any_input_is_a_fault() -> None:
    (found,) = faults_of("stream: {metrics: [{name: m, from: a, measure: count}]}")
    assert "found 'a', expected an input of stream.from: none" in found


def test_a_secret_is_never_told() -> None:
    found = faults_of("sinks: {redis: {password: [hunter2]}}")
    assert len(found) == 1
    assert "hunter2" not in found[0]
    behind = faults_of("monitor: {listen: '${SECRET}'}", {"SECRET": "hunter2"})
    assert "hunter2" not in behind[0].split("expected")[0]


def test_the_shipped_file_has_no_fault() -> None:
    loaded = load(SHIPPED, SHIPPED.parents[1], {})
    names = [metric.name for metric in loaded.config.stream.metrics]
    assert names == [
        "requests_by_status",
        "top_paths",
        "bytes_by_status",
        "visitors",
        "lines_by_file",
    ]
    assert loaded.config.cluster.brokers == 3


def test_a_missing_file_is_a_fault(tmp_path: Path) -> None:
    with pytest.raises(ConfigFaults, match="no such file"):
        load(tmp_path / "no.yaml", tmp_path, {})


def test_a_file_that_is_no_text_is_a_fault(tmp_path: Path) -> None:
    path = tmp_path / "binary.yaml"
    path.write_bytes(b"cluster: \xff\xfe")
    with pytest.raises(ConfigFaults, match="UTF-8"):
        load(path, tmp_path, {})


def test_published_parts_may_listen_anywhere() -> None:
    text = "monitor: {listen: '0.0.0.0:8090'}"
    loaded = load_text(text, "m", Path("/nowhere"), {"MILLRACE_PUBLISHED": "loopback"})
    assert loaded.config.monitor.listen == "0.0.0.0:8090"
    assert "loopback" in faults_of(text, {"MILLRACE_PUBLISHED": "yes"})[0]


def test_a_foreign_cluster_may_know_more_keys() -> None:
    text = (
        "cluster: {bootstrap_servers: 'kafka-1:9092, kafka-2:9092'}\n"
        "topics: [{name: t, replication: 3, settings: {remote.storage.enable: true}}]\n"
        "stream: {from: {a: {topic: elsewhere, format: raw}}}\n"
    )
    config = load_text(text, "m", Path("/nowhere"), {}).config
    assert config.cluster.bootstrap_servers == "kafka-1:9092,kafka-2:9092"


ROUTED = (
    "collector: {inputs: [{paths: ['watched/*/*'], topic: 'logs.{1}'}]}\n"
    "stream: {from: {a: {topic: %s, format: raw}}}\n"
)


def test_a_topic_that_only_a_template_makes_is_one_to_be_counted() -> None:
    load_text(ROUTED % "logs.web", "m", Path("/nowhere"), {})
    [found] = faults_of(ROUTED % "log.web")
    assert "stream.from.a.topic: found 'log.web'" in found
    assert "topics that a template of them makes" in found


ACCESS = "stream: {from: {a: {topic: logs.access, format: combined}}, metrics: [%s]}\n"


def test_a_number_of_what_never_is_one_is_refused() -> None:
    for measure in ("sum", "mean", "percentile"):
        [found] = faults_of(ACCESS % f"{{name: m, from: a, measure: {measure}, value: Path}}")
        assert "stream.metrics[0].value: found path, which is not a number" in found
        assert "status or bytes" in found
    for value in ("bytes", "length(path)", "user"):
        load_text(
            ACCESS % f"{{name: m, from: a, measure: sum, value: {value}}}", "m", Path("/x"), {}
        )


def test_a_function_of_many_lines_is_refused_where_there_is_one() -> None:
    text = ACCESS % "{name: m, from: a, measure: count, where: 'status = 200 and count(1) > 2'}"
    [found] = faults_of(text)
    assert (
        "stream.metrics[0].where: found count(), which is over many lines at character 18" in found
    )
    assert "one line" in found
    assert "measure: count" in found
    harmless = ACCESS % "{name: m, from: a, measure: count, where: \"path = 'count(1)'\"}"
    load_text(harmless, "m", Path("/x"), {})


@pytest.mark.parametrize(
    ("folder", "is_fault"),
    [
        ("watched/access/old", True),
        ("./watched/access", True),
        ("/nowhere/watched/json/a", True),
        ("file:///nowhere/watched/json", True),
        ("data/archive", False),
        ("watched/archive", False),
        ("hdfs://nowhere/watched/json", False),
    ],
)
def test_an_archive_that_would_feed_itself_is_refused(folder: str, is_fault: bool) -> None:
    text = f"stream: {{archive: {{folder: '{folder}'}}}}\n"
    if not is_fault:
        load_text(text, "m", Path("/nowhere"), {})
        return
    [found] = faults_of(text)
    assert "stream.archive.folder" in found
    assert "collector.inputs[" in found


def test_settings_beside_an_existing_cluster_are_said_to_be_unused() -> None:
    text = SHIPPED.read_text().replace("bootstrap_servers: null", "bootstrap_servers: 'k:9092'")
    loaded = load_text(text, "m", SHIPPED.parents[1], {})
    [note] = loaded.notes
    assert "cluster.settings (num.partitions) have no effect" in note
    assert load_text("", "m", Path("/x"), {}).notes == ()


def test_a_text_of_a_form_of_its_own_is_named_by_example() -> None:
    assert "expected a duration such as 100ms" in faults_of("stream: {trigger: 100}")[0]
    assert "expected a duration such as 2s" in faults_of("monitor: {refresh: 2}")[0]
    for keep in ("mysql: 30", "redis: 30", "mysql: {1m: 30}", "mysql: [30d]"):
        (said,) = faults_of(f"stream: {{defaults: {{keep: {{{keep}}}}}}}")
        assert "expected a duration such as 30d, or forever" in said
    windows = "stream: {defaults: {windows: [60]}}"
    assert "expected a window such as 10s, 1m" in faults_of(windows)[0]


def test_a_metric_named_twice_is_shown_where_it_stands_again() -> None:
    text = (
        "stream:\n  from: {a: {topic: logs.access, format: combined}}\n  metrics:\n"
        "    - {name: one, from: a, measure: count}\n"
        "    - {name: two, from: a, measure: count}\n"
        "    - {name: one, from: a, measure: count}\n"
    )
    [found] = faults_of(text)
    assert found.startswith("mill.yaml:6:14: stream.metrics[2].name: found metric 'one' twice")
