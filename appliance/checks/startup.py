"""The conditions that must hold before the mill can start. Each check that fails names a remedy.

`up` refuses to start on a failure. `doctor` shows all checks.
"""

import os
import shutil
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from appliance.config.model import BROKER_ID_MAX
from appliance.config.page import ADD_PERSON
from appliance.launch.servers import find_program
from appliance.machine.files import restoring
from appliance.machine.java import MAJOR_MIN, find_java
from appliance.machine.processes import (
    PortHolder,
    addresses_of_this_machine,
    has_address,
    holder_of,
    port_is_free,
)
from appliance.mill.home import Home
from appliance.mill.init import read_meta_properties
from appliance.mill.moved_folder import MoveFault, refuse_absent
from appliance.mill.page_logins import LoginFileFault, people
from appliance.mill.parts import (
    BROKER_PREFIX,
    broker_ids,
    bundles_mysql,
    bundles_redis,
    listen_host,
)
from appliance.mill.settings import Mill
from appliance.mill.voter_folders import newest_voters, stored_voters
from broker.config import TlsFiles
from broker.real.certificates import checked_context
from broker.real.tls_files import WrongCertificate
from monitor.config.settings import split_address
from stream.spark.jars import jar_paths, missing_jars, pinned_jars
from stream.spark.masters import MasterAway, addresses, ask_masters

FREE_BYTES_MIN = 256 << 20
FREE_BYTES_WARNING = 2 << 30
CONTAINER_PROXY = "docker-proxy"
TLS_SETTING = b"tls-auth-clients"
"""A setting that Redis knows only if it was built with TLS."""


class CheckLevel(StrEnum):
    """The result of a check: passed, a warning, or failed."""

    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Check:
    """One check: what was examined, the result, and what to do about it."""

    level: CheckLevel
    what: str
    found: str
    remedy: str = ""

    def __str__(self) -> str:
        remedy = f"; {self.remedy}" if self.remedy else ""
        return f"{self.what}: {self.found}{remedy}"


def before_start(mill: Mill) -> list[Check]:
    """Return every check that must pass while no part of the mill runs."""
    found = [*programs(mill), *connector_jars(mill), *spark_master(mill), *data_ownership(mill)]
    found += [*network(mill)]
    found += [*unfinished_restore(mill.home), *disk_space(mill.home), *ports(mill)]
    return [check for check in found if check.level is CheckLevel.FAILED]


def programs(mill: Mill) -> Iterator[Check]:
    """Find Java, Redis and MySQL, if this configuration needs them."""
    if mill.config.stream.metrics:
        java = find_java()
        if java is None:
            found = f"no runtime of version {MAJOR_MIN} or later"
            yield Check(
                CheckLevel.FAILED, "Java", found, "`make setup` installs one, or set JAVA_HOME"
            )
        else:
            yield Check(CheckLevel.OK, "Java", f"version {java.version} in {java.home}")
    wanted: list[tuple[str, tuple[str, ...]]] = []
    if bundles_redis(mill.config):
        wanted.append(("Redis server", ("redis-server",)))
    if bundles_mysql(mill.config):
        wanted.append(("MySQL server", ("mariadbd", "mysqld")))
    for what, names in wanted:
        program = find_program(*names)
        if program is None:
            yield Check(CheckLevel.FAILED, what, "not installed", "`make setup` installs it")
        else:
            yield Check(CheckLevel.OK, what, program)


def redis_with_tls(mill: Mill) -> Iterator[Check]:
    """Check that an open Redis was built with TLS. If it was, the file of the program contains the
    names of the TLS settings. No option of the program tells this."""
    program = find_program("redis-server")
    if program is None or "redis" not in mill.config.network.open:
        return
    if TLS_SETTING not in Path(program).read_bytes():
        found = f"{program} was built without TLS"
        remedy = "install a build with TLS, or take redis out of network.open"
        yield Check(CheckLevel.FAILED, "open Redis", found, remedy)


def network(mill: Mill) -> Iterator[Check]:
    """Check what listeners with TLS and a login need: certificate, addresses, Redis with TLS, and a
    person."""
    yield from own_certificate(mill)
    yield from listen_address(mill)
    yield from page_address(mill)
    yield from page_people(mill)
    yield from redis_with_tls(mill)


def own_certificate(mill: Mill) -> Iterator[Check]:
    """Check the certificate files that the user provides, as the brokers do at their start."""
    network, folder = mill.config.network, mill.home.folder
    own = network.tls
    if not network.open or own.certificate is None or own.key is None:
        return
    files = TlsFiles(
        certificate=str(folder / own.certificate),
        key=str(folder / own.key),
        ca=str(folder / own.ca) if own.ca else None,
    )
    try:
        checked_context(files, _net_names(mill))
    except WrongCertificate as error:
        key, found, expected = error.fault
        yield Check(CheckLevel.FAILED, f"network.{key}", f"found {found}, expected {expected}")


def _net_names(mill: Mill) -> tuple[str, ...]:
    """Return the names that clients of this machine's brokers dial."""
    hosts, own = mill.config.cluster.hosts, mill.placement.broker
    if hosts is None:
        return mill.config.network.names
    return (*([hosts[own]] if own is not None else []), *mill.config.network.names)


def listen_address(mill: Mill) -> Iterator[Check]:
    """Check that this machine has the address where clients reach the mill with TLS."""
    network = mill.config.network
    if network.listening and not has_address(network.listen):
        yield _foreign_address("network.listen", network.listen)


def page_address(mill: Mill) -> Iterator[Check]:
    """Check that this machine has the address of an opened page."""
    host, _ = split_address(mill.config.monitor.listen)
    if mill.config.network.opens_page and not has_address(host):
        yield _foreign_address("monitor.listen", host)


def _foreign_address(key: str, host: str) -> Check:
    known = ", ".join(["127.0.0.1", *addresses_of_this_machine()])
    return Check(
        CheckLevel.FAILED,
        key,
        f"this machine does not have the address {host}",
        f"write one of its addresses ({known}), or 0.0.0.0 for all of its IPv4 addresses",
    )


def page_people(mill: Mill) -> Iterator[Check]:
    """Check that there is a person who can log in to the page."""
    if mill.config.monitor.login != "users":
        return
    try:
        found = people(mill.home)
    except LoginFileFault as error:
        yield Check(CheckLevel.FAILED, "monitor.login", str(error))
        return
    if not found:
        yield Check(
            CheckLevel.FAILED,
            "monitor.login",
            "users, but there is no person who can log in to the page",
            f"run `{ADD_PERSON}`",
        )


def unfinished_restore(home: Home) -> Iterator[Check]:
    """Report a restore that was killed or is still running.

    Without this check, `up` would create an empty mill in the folder that the restore is about to
    fill.
    """
    staging = restoring(home.data)
    if staging.exists() and not home.secrets.exists():
        found = f"{staging} exists: a restore was killed, or is still running"
        remedy = (
            "`./millrace restore` of the same backup starts the restore again; if you delete"
            f" {staging}, the mill starts empty"
        )
        yield Check(CheckLevel.FAILED, "restore", found, remedy)


def connector_jars(mill: Mill, *, check_sums: bool = False) -> Iterator[Check]:
    """Find Spark's Kafka connector in the cache.

    Its checksums are compared only if `check_sums` is true, because this is slower.
    """
    if not mill.config.stream.metrics:
        return
    what, folder = "Spark's Kafka connector", mill.home.jars
    if check_sums:
        wrong = [jar.file_name for jar in missing_jars(folder, pinned_jars())]
    else:
        wrong = [path.name for path in jar_paths(folder) if not path.is_file()]
    if wrong:
        found = f"missing or wrong in {folder}: {', '.join(wrong)}"
        yield Check(CheckLevel.FAILED, what, found, "`make setup` fetches what is missing")
    else:
        sums = ", sums agree" if check_sums else ""
        yield Check(CheckLevel.OK, what, f"{len(jar_paths(folder))} jars in {folder}{sums}")


def spark_master(mill: Mill) -> Iterator[Check]:
    """Check that the master of a standalone Spark cluster can be reached, if the stream uses
    one.
    """
    master = mill.config.stream.master
    if not mill.config.stream.metrics:
        return
    try:
        ask_masters(master)
    except MasterAway as error:
        yield Check(
            CheckLevel.FAILED, "Spark's master", str(error), "start it, or correct stream.master"
        )
    else:
        if addresses(master):
            yield Check(CheckLevel.OK, "Spark's master", f"{master} answers")


def data_ownership(mill: Mill) -> Iterator[Check]:
    """Check that each broker's folder has the mill's cluster id and the configured number of
    brokers."""
    yield from _cluster_sizes(mill)
    for part in mill.parts:
        if not part.name.startswith("broker-"):
            continue
        folder = mill.home.part_data(part.name)
        yield from _moved_folder(folder)
        noted = read_meta_properties(folder / "meta.properties")
        path = mill.home.part_secrets(part.name) / "cluster_id"
        if "cluster.id" not in noted or not path.exists():
            continue
        theirs, ours = noted["cluster.id"], path.read_text().strip()
        if theirs != ours:
            yield Check(
                CheckLevel.FAILED,
                f"data folder {folder}",
                f"the folder belongs to another cluster: its cluster.id is {theirs}, and that of"
                f" this mill is {ours}",
                "put the right data folder back, or move this one away to start with an empty one",
            )


def _moved_folder(folder: Path) -> Iterator[Check]:
    """Check that a broker's folder is where its link says, and that no move of it was
    interrupted."""
    try:
        refuse_absent(folder)
    except MoveFault as fault:
        yield Check(CheckLevel.FAILED, f"data folder {folder}", fault.found, fault.remedy)


def _cluster_sizes(mill: Mill) -> Iterator[Check]:
    """Compare the voters that the data folders name with the configured brokers."""
    configured = broker_ids(mill.config)
    numbers = range(1, BROKER_ID_MAX + 1)
    # The folder of a broker that was removed has the voters as of its removal, so use the
    # configured brokers first.
    known = newest_voters(mill.home, configured) or newest_voters(mill.home, numbers)
    if not configured or known is None:
        return
    voters = known.ids
    # One of several hosts has only the folder of its own broker, which can be a newcomer.
    known_here = mill.config.cluster.hosts or any(stored_voters(_folder(mill, n)) for n in voters)
    if not known_here:
        yield Check(
            CheckLevel.FAILED,
            f"data folders below {mill.home.data}",
            f"the folders of the voters are empty (brokers {', '.join(map(str, voters))}), and"
            " another broker has a copy of their metadata",
            f"put the folders back, restore a backup, or move {mill.home.data} away to start an"
            " empty mill",
        )
        return
    missing = sorted(set(voters) - set(configured))
    if not missing:
        return
    stated = str(len(voters)) if voters == tuple(range(1, len(voters) + 1)) else str(list(voters))
    whose = f"brokers {', '.join(map(str, voters))}" if voters[1:] else f"broker {voters[0]} alone"
    if len(configured) == 1:
        why = "a cluster of three brokers cannot become one broker"
    else:
        why = (
            f"broker {missing[0]} is a voter of the metadata quorum, so only `./millrace broker "
            f"remove {missing[0]}` takes it out, while the mill runs"
        )
    for number in numbers:
        folder = _folder(mill, number)
        stored = stored_voters(folder)
        if stored is None or stored.ids != voters:
            continue
        yield Check(
            CheckLevel.FAILED,
            f"{mill.home.edited_config}: cluster.brokers",
            f"{len(configured)}, but data folder {folder} belongs to a cluster of {whose}",
            f"{why}: set cluster.brokers: {stated}, or move {mill.home.data} away to start an"
            " empty mill",
        )


def _folder(mill: Mill, number: int) -> Path:
    return mill.home.part_data(f"{BROKER_PREFIX}{number}")


def disk_space(home: Home) -> Iterator[Check]:
    """Check the free space for logs and databases."""
    folder = home.data if home.data.exists() else home.folder
    free = shutil.disk_usage(folder).free
    text = f"{free / (1 << 30):.1f} GiB free"
    remedy = "free disk space, or shorten retention.ms in configs/millrace.yaml"
    if free < FREE_BYTES_MIN:
        yield Check(CheckLevel.FAILED, f"disk of {folder}", text, remedy)
    elif free < FREE_BYTES_WARNING:
        yield Check(CheckLevel.WARNING, f"disk of {folder}", text, remedy)
    else:
        yield Check(CheckLevel.OK, f"disk of {folder}", text)
    if not os.access(folder, os.W_OK):
        yield Check(CheckLevel.FAILED, f"folder {folder}", "not writable", "let the mill own it")


def ports(mill: Mill, *, leaving_out: Collection[int] = ()) -> Iterator[Check]:
    """Check that every port of a part that will start is free, at the address where the part
    listens. `network` reports an address that this machine does not have."""
    listen = mill.config.network.listen
    for part in mill.parts:
        for setting, port in part.ports:
            place = mill.placement
            host = listen if part.is_open else listen_host(mill.config, place, setting)
            if port in leaving_out or not has_address(host):
                continue
            what = f"port {port} ({setting}, for {part.name})"
            if port_is_free(host, port):
                yield Check(CheckLevel.OK, what, "free")
            else:
                holder = holder_of(port)
                remedy = f"{_way_out(holder)}, or change {setting}"
                yield Check(CheckLevel.FAILED, what, f"in use by {holder}", remedy)


def _way_out(holder: PortHolder) -> str:
    """Return the remedy for a port in use. If a container's proxy uses the port, the remedy is to
    stop the container."""
    if holder.command == CONTAINER_PROXY:
        return "stop the container that publishes the port (for this mill: `docker compose down`)"
    return "stop that process"
