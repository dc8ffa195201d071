"""The checks between sections: each one compares values of several sections of the file.

All checks except `check_links` are pure. Each check adds its faults to the document. All checks
run, so that the user sees every fault.
"""

from collections.abc import Callable, Collection
from functools import partial

from appliance.config.collecting import check_sinks
from appliance.config.document import Document
from appliance.config.faults import Path, did_you_mean, found_text
from appliance.config.hosts import check_hosts
from appliance.config.links import check_links, check_sinks_tls
from appliance.config.model import BROKER_COUNTS, MillConfig
from appliance.config.network import check_network, is_loopback
from appliance.config.page import check_logins, check_page
from appliance.config.published import Published, check_published, check_published_hosts
from appliance.config.replication import check_replication
from appliance.config.runnable import check_archive, check_metrics
from broker.config import check_settings, check_topic_settings
from monitor.config.settings import split_address

SUPER_USERS = "super.users"
"""The broker's key for the users that `security.super_users` names."""

PORT_MAX = 65_535


def check_all(
    config: MillConfig,
    document: Document,
    *,
    home: str,
    published: Published | None,
    wrong: Collection[Path] = (),
) -> None:
    """Append every fault between sections.

    Keys named in `wrong` already have faults and their values are missing. A check that needs such
    a key is skipped. A check that examines a list entry by entry still runs for the other entries.
    `published` is what compose publishes; None if the parts are no containers.
    """
    checks: list[tuple[Callable[[MillConfig, Document], None], tuple[Path, ...]]] = [
        (_check_brokers, (("cluster",),)),
        (_check_broker_settings, (("cluster", "bootstrap_servers"),)),
        (_check_super_users, (("cluster",), ("security",), ("network", "listen"))),
        (_check_topics, (("cluster", "bootstrap_servers"), ("topics",))),
        (_check_inputs, (("collector", "inputs"),)),
        (_check_sources, (("cluster", "bootstrap_servers"), ("collector",), ("topics",))),
        (check_network, (("network",), ("cluster", "bootstrap_servers"))),
        (check_hosts, (("cluster",), ("network",))),
        (_check_ports, (("cluster", "brokers"),)),
        (_check_places, (("cluster", "brokers"), ("cluster", "hosts"))),
        (check_sinks, (("cluster", "bootstrap_servers"), ("stream", "metrics"), ("sinks",))),
        (check_metrics, ()),
    ]
    if not _touch(wrong, (("collector", "inputs"),)):
        check_archive(config, document, home)
    if not _touch(wrong, (("cluster", "bootstrap_servers"), ("cluster", "security"))):
        check_links(config, document, home)
    if not _touch(wrong, (("sinks",),)):
        check_sinks_tls(config, document, home)
    if published is not None:
        sections = (("network",), ("ports",), ("monitor",))
        checks.append((partial(check_published, published=published), sections))
        checks.append((check_logins, (("network",), ("monitor",))))
        checks.append((_refuse_places, (("ports",),)))
        sections = (("cluster",), ("network",), ("ports",))
        checks.append((partial(check_published_hosts, published=published), sections))
    else:
        checks.append((check_page, (("network",), ("monitor",))))
    for check, needed in checks:
        if not _touch(wrong, needed):
            check(config, document)


def _touch(wrong: Collection[Path], needed: Collection[Path]) -> bool:
    """Return whether a key in `wrong` is one of the `needed` keys, is inside of one, or contains
    one.
    """
    return any(a[: len(b)] == b or b[: len(a)] == a for a in wrong for b in needed)


def notes_on(config: MillConfig) -> tuple[str, ...]:
    """Return notes on settings that are valid but have no effect or an unexpected effect."""
    if config.cluster.bootstrap_servers is not None and config.cluster.settings:
        names = ", ".join(config.cluster.settings)
        return (
            f"cluster.settings ({names}) have no effect: cluster.bootstrap_servers names an"
            " existing cluster, so change its settings there",
        )
    return ()


def _check_brokers(config: MillConfig, document: Document) -> None:
    if config.cluster.bootstrap_servers is not None:
        return
    stated = config.cluster.brokers
    if isinstance(stated, int) and stated not in BROKER_COUNTS:
        why = ": of two, neither can go on alone" if stated == 2 else ""
        listed = ", or a list of ids for more" if stated > max(BROKER_COUNTS) else ""
        expected = f"1 or 3{why}{listed} (or bootstrap_servers of an existing cluster)"
        document.add(("cluster", "brokers"), str(stated), expected)
        return
    check_replication(config, document)
    _check_racks(config, document)


def _check_racks(config: MillConfig, document: Document) -> None:
    count, racks = len(config.cluster.broker_ids), config.cluster.racks
    path = ("cluster", "racks")
    if racks and len(racks) != count:
        document.add(path, f"{len(racks)} of them", f"a rack for each broker: {count}, or none")
    for place, rack in enumerate(racks):
        if not rack.strip():
            document.add((*path, place), found_text(rack), "the name of a rack")


def _check_broker_settings(config: MillConfig, document: Document) -> None:
    if config.cluster.bootstrap_servers is not None:
        return
    for key, value, expected in check_settings(config.cluster.settings):
        document.add(("cluster", "settings", key), found_text(value), expected)


def _check_super_users(config: MillConfig, document: Document) -> None:
    """Append a fault if two keys name the super users, because one would override the other, or if
    a listener with logins could never open because there are none."""
    is_set = "super_users" in config.security.model_fields_set
    named = config.cluster.settings.get(SUPER_USERS, config.security.super_users)
    network = config.network
    is_beyond = not is_loopback(network.listen) and network.has_users
    if ((network.opens_kafka and network.login) or is_beyond) and not named:
        key = ("cluster", "settings", SUPER_USERS)
        beside = f"listen: {network.listen}" if is_beyond else f"login: {network.login}"
        document.add(
            key if SUPER_USERS in config.cluster.settings else ("security", "super_users"),
            f"no user, beside network.{beside}",
            "at least one user, such as super_users: [admin]: without one the listener with logins"
            " would never open",
        )
    if is_set and SUPER_USERS in config.cluster.settings:
        document.add(
            ("cluster", "settings", SUPER_USERS),
            f"{found_text(config.cluster.settings[SUPER_USERS])} beside security.super_users",
            "only one of the two: keep security.super_users, and remove this key",
        )


def _check_topics(config: MillConfig, document: Document) -> None:
    seen: dict[str, int] = {}
    for index, topic in enumerate(config.topics):
        if topic.name in seen:
            first = seen[topic.name]
            document.add(
                ("topics", index, "name"),
                f"{topic.name!r} a second time",
                f"each topic once (it is also at topics[{first}])",
            )
        seen.setdefault(topic.name, index)
        if config.cluster.bootstrap_servers is not None:
            continue
        for key, value, expected in check_topic_settings(topic.settings):
            document.add(("topics", index, "settings", key), found_text(value), expected)


def _check_inputs(config: MillConfig, document: Document) -> None:
    seen: dict[str, int] = {}
    for index, entry in enumerate(config.collector.inputs):
        for position, glob in enumerate(entry.paths):
            if glob in seen:
                document.add(
                    ("collector", "inputs", index, "paths", position),
                    f"{glob!r} a second time",
                    f"each path in one input only (it is also at inputs[{seen[glob]}])",
                )
            seen.setdefault(glob, index)


def _check_sources(config: MillConfig, document: Document) -> None:
    """Append a fault for each topic that the stream reads but no input writes.

    A topic that is listed in `topics` is not a fault. If the mill uses an existing Kafka cluster, a
    missing input is not a fault, because other programs can write the topic.
    """
    if config.cluster.bootstrap_servers is not None:
        return
    known = {*config.collector.topics, *(topic.name for topic in config.topics)}
    for name, source in config.stream.from_.items():
        if source.topic not in known and not config.collector.may_write(source.topic):
            document.add(
                ("stream", "from", name, "topic"),
                found_text(source.topic),
                "a topic of collector.inputs, or one of the topics that a template of them makes,"
                " or one listed under topics" + did_you_mean(source.topic, sorted(known)),
            )


def _check_ports(config: MillConfig, document: Document) -> None:
    taken: dict[int, str] = {}
    spread = {"host", "mill", "broker", "net", "broker_status"}
    unused = {"places"} if config.network.opens_kafka else {"places", "net"}
    _, monitor_port = split_address(config.monitor.listen)
    wanted = [
        (("ports", name), getattr(config.ports, name))
        for name in type(config.ports).model_fields
        if name not in unused
    ]
    for path, port in [*wanted, (("monitor", "listen"), monitor_port)]:
        ids = config.cluster.broker_ids if path[1] in spread else ()
        for number in [config.ports.of_broker(path[1], one) for one in ids] or [port]:
            name = ".".join(path)
            if number > PORT_MAX:
                document.add(path, f"{number} for a broker", f"ports up to {PORT_MAX}")
            if number in taken:
                document.add(path, str(number), f"a port of its own ({taken[number]} has it)")
            taken.setdefault(number, name)


def _refuse_places(config: MillConfig, document: Document) -> None:
    """Append a fault for brokers with other ports in containers."""
    for number in config.ports.places:
        expected = "no places: the compose file names the ports of each container"
        document.add(("ports", "places", str(number)), f"broker {number}", expected, key=True)


def _check_places(config: MillConfig, document: Document) -> None:
    """Append a fault for a broker with other ports that does not exist here."""
    ids = config.cluster.broker_ids if config.cluster.bootstrap_servers is None else ()
    for number in config.ports.places:
        path = ("ports", "places", str(number))
        if config.cluster.hosts is not None:
            expected = "no places: brokers on several hosts (cluster.hosts) need no other ports"
            document.add(path, f"broker {number}", expected, key=True)
        elif number not in ids:
            listed = ", ".join(map(str, ids)) or "none"
            document.add(
                path,
                f"broker {number}, which is not in cluster.brokers",
                f"only brokers of cluster.brokers, which are {listed}",
                key=True,
            )
