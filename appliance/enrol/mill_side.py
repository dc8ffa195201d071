"""The mill's side of an enrolment: make the user of a collector, list the users, and revoke one."""

import asyncio
import secrets
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass

from appliance.config.model import MillConfig
from appliance.config.network import is_loopback
from appliance.enrol.join_file import CA_CHARS_MAX, JoinFile
from appliance.enrol.rights import (
    GROUP_DEFAULT,
    TOPICS_DEFAULT,
    CollectorRights,
    TopicRight,
    acls_of,
    commit_interval_ms,
    example_topic,
    names_of,
    own_topics,
    rights_in,
    state_of,
    user_of,
)
from appliance.kafka import users
from appliance.kafka.acls import super_users
from appliance.mill.home import Home
from appliance.mill.parts import broker_ids, net_addresses
from appliance.output import CommandError, Exit
from collector.config.limits import to_raise, wanted_limits
from collector.config.settings import CollectorSection
from collector.send.topic_access import batch_limits, set_batch_limits
from collector.send.topics import INPUT_PARTITIONS
from protocol.client.acl_admin import create_acls, delete_acls, describe_acls
from protocol.client.admin import Admin
from protocol.client.admin_types import TopicSpec
from protocol.client.cluster import Cluster
from protocol.client.producer import Producer
from protocol.client.user_admin import (
    describe_enrolments,
    describe_users,
    remove_credential,
    set_password,
)
from protocol.collector_report import COLLECTORS_TOPIC
from protocol.security.acl import USER_PREFIX, AclEntry, AclFilter
from protocol.security.address import bracketed
from protocol.security.scram import Mechanism

SECRET_BYTES = 32
LOOKS_MAX = 50
LOOK_EVERY_S = 0.1
MECHANISM = Mechanism.SHA_512
"""The mechanism of enrolled users. It is the only one, because only our client logs in so."""

NET_EXAMPLE = (
    "write this into configs/millrace.yaml and run `./millrace up --apply`:\n"
    "network: {open: [kafka], listen: 0.0.0.0, names: [NAME OF THIS HOST], login: users}"
)


@dataclass(frozen=True, slots=True)
class MillEntry:
    """How hosts reach the mill: its addresses with logins, and the CA that they must trust."""

    addresses: tuple[str, ...]
    ca: str | None
    """The CA in PEM format; None: every machine trusts the certificates."""


@dataclass(frozen=True, slots=True)
class Enrolment:
    """The options of `enrol collector`. None keeps what an enrolled collector has. For a new
    collector None means the default."""

    group: str | None
    topics: tuple[TopicRight, ...] | None
    valid_ms: int


def entry_of(config: MillConfig, home: Home) -> MillEntry:
    """Return how hosts reach the mill. Raises CommandError if it has no listener with logins."""
    network = config.network
    if config.cluster.bootstrap_servers is not None:
        raise CommandError(
            "hosts join a mill with brokers of its own, and cluster.bootstrap_servers names other"
            " brokers: run this command at their mill",
            Exit.CONDITION,
        )
    if not network.opens_kafka or network.login is None:
        found = "no network.login" if network.opens_kafka else "no network.open: [kafka]"
        raise CommandError(
            f"hosts need a listener with TLS and logins, and the configuration has {found}; "
            f"{NET_EXAMPLE}",
            Exit.CONDITION,
        )
    if config.cluster.hosts is not None:
        return MillEntry(tuple(net_addresses(config).values()), _ca_of(config, home))
    # The first name is the advertised one, so all brokers are tried under it first.
    ports = [config.ports.of_broker("net", number) for number in broker_ids(config)]
    addresses = [f"{bracketed(name)}:{port}" for name in network.names for port in ports]
    return MillEntry(tuple(addresses), _ca_of(config, home))


def note_on(config: MillConfig) -> str | None:
    """Return a note if only this machine can use a join file of this mill; else None."""
    network = config.network
    if is_loopback(network.listen):
        key, found = "network.listen", network.listen
    elif config.cluster.hosts is not None:
        return None
    elif is_loopback(network.names[0]):
        key, found = "network.names", network.names[0]
    else:
        return None
    return f"{key} is {found}, so only this machine reaches the mill with the join file"


def _ca_of(config: MillConfig, home: Home) -> str | None:
    """Return the CA that signs the brokers' certificates; None if the file of the user's own
    certificate has no CA beside it, because then a public CA has signed it."""
    tls = config.network.tls
    if tls.certificate is not None and tls.ca is None:
        return None
    path = home.data / "ca.pem" if tls.ca is None else home.folder / tls.ca
    try:
        # Certificates in PEM format are ASCII. The notes between them can have any encoding.
        found = path.read_text(encoding="ascii", errors="ignore")
    except OSError as error:
        raise CommandError(
            f"the CA of the brokers cannot be read: {path}: {error.strerror}; `{home.up}` makes it",
            Exit.CONDITION,
        ) from error
    if len(found) > CA_CHARS_MAX:
        raise CommandError(
            f"{path} has {len(found)} characters, and a join file takes {CA_CHARS_MAX}: write a"
            " file that has only the CAs of the brokers into network.tls.ca",
            Exit.CONDITION,
        )
    return found


async def refuse_known(cluster: Cluster, names: Sequence[str]) -> None:
    """Raise CommandError if one of these collectors is enrolled already."""
    found = await describe_users(cluster, [user_of(name) for name in names])
    known = [name for name in names if user_of(name) in found]
    if known:
        raise CommandError(
            f"collector {', '.join(known)} is enrolled already; `--again` makes another join file,"
            " which ends the connections of the collector that uses the name now",
            Exit.CONDITION,
        )


async def refuse_unknown(cluster: Cluster, name: str) -> None:
    """Raise CommandError if this collector is not enrolled."""
    user = user_of(name)
    if user not in await describe_users(cluster, [user]):
        raise CommandError(
            f"no collector {name} is enrolled; `millrace enrol list` shows them", Exit.NOT_FOUND
        )


async def refuse_without_super_user(cluster: Cluster) -> None:
    """Raise CommandError if no super user has a password. Until then NET accepts no connection."""
    supers = await super_users(cluster)
    if not supers & (await describe_users(cluster)).keys():
        wanted = min(supers, default="admin")
        raise CommandError(
            "the brokers do not accept logins, because no super user has a password: run"
            f" `./millrace user add {wanted}` first",
            Exit.CONDITION,
        )


async def enrol_all(
    cluster: Cluster,
    names: Sequence[str],
    asked: Enrolment,
    entry: MillEntry,
    topics: Mapping[str, TopicSpec],
) -> AsyncIterator[JoinFile]:
    """Enrol collectors one after the other, and yield the join file of each.

    All get the commit interval for the number of collectors after the last one. Otherwise the first
    ones of a thousand would commit as often as if they were alone. Raises as `enrol` does.
    """
    known = names_of([*await describe_users(cluster)])
    interval_ms = commit_interval_ms(len({*known, *names}))
    for name in names:
        yield await enrol(cluster, name, asked, entry, topics, interval_ms)


async def enrol(
    cluster: Cluster,
    name: str,
    asked: Enrolment,
    entry: MillEntry,
    topics: Mapping[str, TopicSpec],
    interval_ms: int,
) -> JoinFile:
    """Make the user of a collector with everything that it needs, and return its join file, which
    has this commit interval.

    `topics` are the topics of the mill's configuration. Those that the collector may write are
    created as it says, because the collector can create none. The user comes last, so no host can
    log in before the ACLs are complete. Raises CommandError and ApiError.
    """
    user = user_of(name)
    principal = USER_PREFIX + user
    present = await describe_acls(cluster, AclFilter(principal=principal))
    rights = _rights(asked, rights_in(present))
    example = example_topic(rights, [*topics])
    named = [example, *(one.name for one in rights.topics if not one.is_prefix)]
    named += [topic for topic in topics if any(right.covers(topic) for right in rights.topics)]
    wanted_topics = [
        topics.get(one) or TopicSpec(one, INPUT_PARTITIONS) for one in dict.fromkeys(named)
    ]
    admin = Admin(cluster)
    await admin.ensure_topics([*own_topics(rights.group), *wanted_topics])
    await _raise_limits(admin, [one.name for one in wanted_topics])
    wanted = acls_of(name, rights)
    if gone := [AclFilter(*one) for one in present if one not in wanted]:
        await delete_acls(cluster, gone)
    await create_acls(cluster, wanted)
    ends = (await describe_enrolments(cluster, [user])).get(user, {})
    for mechanism in ends:
        if mechanism is not MECHANISM:
            await remove_credential(cluster, user, mechanism)
    secret = secrets.token_urlsafe(SECRET_BYTES)
    await set_password(cluster, user, secret, MECHANISM, enrolment_ms=asked.valid_ms)
    ends_ms = await _new_end(cluster, name, ends.get(MECHANISM))
    return JoinFile(
        cluster_id=cluster.current.cluster_id or "",
        name=name,
        group=rights.group,
        addresses=entry.addresses,
        ca=entry.ca,
        user=user,
        mechanism=MECHANISM,
        secret=secret,
        ends_ms=ends_ms,
        topic=example,
        commit_interval_ms=interval_ms,
    )


async def _new_end(cluster: Cluster, name: str, before: int | None) -> int:
    """Return the wall time in milliseconds at which a new join file expires. `before` is the end of
    the credential that it replaces: 0 for a lasting one, and None if there was none.

    The broker that answers can be behind the controller, so this asks until it has caught up. A
    controller of an earlier version writes a lasting credential, so the user is removed again.
    Raises CommandError.
    """
    user = user_of(name)
    shown = before
    for attempt in range(LOOKS_MAX):
        if attempt:
            await asyncio.sleep(LOOK_EVERY_S)
        shown = (await describe_enrolments(cluster, [user])).get(user, {}).get(MECHANISM)
        if shown and shown != before:
            return shown
    if shown == 0 and before != 0:
        await users.remove(cluster, user)
        raise CommandError(
            "the brokers did not store the end of the join file, so no host was enrolled: restart"
            " brokers of an earlier version with this one first (`./millrace upgrade`)",
            Exit.CONDITION,
        )
    raise CommandError(
        f"the brokers do not show the new secret of collector {name}: type the same command again"
        " with --again. If that does not help, brokers of an earlier version run: restart them with"
        " this one (`./millrace upgrade`)",
        Exit.TIMEOUT,
    )


async def _raise_limits(admin: Admin, topics: Sequence[str]) -> None:
    """Raise the batch limits of topics, so that they take the longest line of an input with default
    settings. Keep limits that were set. A collector on another host may change no settings, and the
    mill's own collector raises only the limits of its own topics."""
    section = CollectorSection.model_validate(
        {"inputs": [{"paths": ["watched/**"], "topic": one} for one in topics]}
    )
    wanted = wanted_limits(section)
    _, unset = await batch_limits(admin, wanted)
    if raised := to_raise(wanted, unset):
        await set_batch_limits(admin, raised)


def _rights(asked: Enrolment, present: CollectorRights | None) -> CollectorRights:
    """Return the wanted rights. An enrolled collector keeps its group and topics unless the command
    names others, because the positions of a reinstalled host are in the topic of its group."""
    group = asked.group or (present.group if present is not None else GROUP_DEFAULT)
    topics = asked.topics or (present.topics if present is not None else ())
    return CollectorRights(group, topics or (TopicRight(TOPICS_DEFAULT, is_prefix=True),))


async def listed(cluster: Cluster, now_ms: int) -> list[dict[str, object]]:
    """Return a row for each enrolled collector: its name, its group, its state, and when its join
    file expires (None if the collector has joined)."""
    ends = await describe_enrolments(cluster)
    rows: list[dict[str, object]] = []
    acls: dict[str, list[AclEntry]] = {}
    for one in await describe_acls(cluster, AclFilter()):
        acls.setdefault(one.principal.removeprefix(USER_PREFIX), []).append(one)
    for name in sorted(names_of([*ends])):
        user = user_of(name)
        rights = rights_in(acls.get(user, []))
        ends_ms = max(ends[user].values(), default=0)
        rows.append(
            {
                "name": name,
                "group": None if rights is None else rights.group,
                "state": state_of(ends[user], now_ms),
                "ends_ms": ends_ms or None,
            }
        )
    return rows


async def revoke(cluster: Cluster, name: str) -> None:
    """Remove the user of a collector and its ACLs. Its connections end. Then remove its report, or
    the monitor would say for a week that the collector is silent. Raises CommandError."""
    await refuse_unknown(cluster, name)
    await users.remove(cluster, user_of(name))
    producer = Producer(cluster)
    await producer.start()
    try:
        await producer.send_and_wait(COLLECTORS_TOPIC, None, key=name.encode())
    finally:
        await producer.close()
