"""The host of a broker: what `join` checks there, and the files that it writes.

Nothing is asked from the mill, because its brokers may not run yet. Each file can be written again
with the same content, and the record of the host is written last. So after an interruption the same
command continues, and a host whose files are incomplete starts nothing.
"""

from datetime import datetime

from appliance.config.faults import ConfigFaults
from appliance.config.load import load, load_text
from appliance.config.model import MillConfig
from appliance.enrol.broker_file import SECTIONS, BrokerCertificate, BrokerFile
from appliance.enrol.host_files import HostFiles
from appliance.machine.files import PRIVATE, PUBLIC, write_atomically
from appliance.mill.certificates import TRUSTED, write_leaf, write_trusted
from appliance.mill.home import Home
from appliance.mill.hosts import HostRecord, of_this_host, read_record, write_record
from appliance.mill.init import (
    ENTRY_PASSWORD,
    FOLDER_MODE,
    LOGIN_SECRET,
    is_config_untouched,
    read_meta_properties,
)
from appliance.mill.parts import BROKER_PREFIX, Placement, main_broker
from appliance.mill.voter_folders import mark_newcomer
from appliance.operate import lifecycle
from appliance.output import CommandError, Exit


def checked_config(home: Home, file: BrokerFile) -> MillConfig:
    """Return the configuration of a join file. Raises CommandError if it has faults, or if the
    broker is not one of its hosts."""
    try:
        config = load_text(file.config_text, "the join file", home.folder, {}).config
    except ConfigFaults as error:
        raise CommandError(
            f"the configuration in the join file has a fault: {error.faults[0]}; correct the file"
            " on the main host, and make another join file",
            Exit.USAGE,
        ) from None
    hosts = config.cluster.hosts or {}
    if file.leaf.broker not in hosts or file.leaf.broker == main_broker(config):
        raise CommandError(
            f"the join file is for broker {file.leaf.broker}, but in its cluster.hosts this broker"
            " is missing or on the main host: make another join file",
            Exit.USAGE,
        )
    return config


def refuse_leaf(leaf: BrokerCertificate, now: datetime) -> None:
    """Raise CommandError if a certificate is not valid now by this host's clock, or if it does not
    belong to its key, its CA or its broker."""
    from appliance.mill.authority import leaf_names

    pair = leaf.certificate.encode(), leaf.key.encode()
    names = leaf_names(*pair, leaf.ca.encode(), now)
    part = f"{BROKER_PREFIX}{leaf.broker}"
    if names is None or part not in names:
        raise CommandError(
            f"the file has no certificate for {part} that is valid at {now:%Y-%m-%d %H:%M} UTC, the"
            " time of this host's clock: correct the clock, or make another file on the main host",
            Exit.CONDITION,
        )


def refuse_other_mill(home: Home, leaf: BrokerCertificate) -> None:
    """Raise CommandError if this folder belongs to another cluster, to another broker of it, or to
    its main host, or if the mill runs."""
    part = f"{BROKER_PREFIX}{leaf.broker}"
    elsewhere = "set MILLRACE_HOME to another folder"
    if home.in_containers:
        elsewhere = "if that mill is not needed any more, remove it with `docker compose down -v`"
    if home.authority_key.exists():
        raise CommandError(
            f"{home.folder} is the folder of a mill with a CA of its own: {elsewhere}",
            Exit.CONDITION,
        )
    record = read_record(home)
    if record is not None and record != HostRecord(leaf.cluster_id, leaf.broker):
        raise CommandError(
            f"this folder has joined cluster {record.cluster_id} as broker {record.broker}, and the"
            f" file is for broker {leaf.broker} of cluster {leaf.cluster_id}: {elsewhere}",
            Exit.CONDITION,
        )
    if HostFiles(home).joined() is not None:
        raise CommandError(
            f"{home.folder} is the folder of a host that only collects: {elsewhere}",
            Exit.CONDITION,
        )
    for secret in sorted(home.secrets.glob(f"{BROKER_PREFIX}*/cluster_id")):
        if (secret.parent.name, secret.read_text().strip()) != (part, leaf.cluster_id):
            raise CommandError(
                f"{home.folder} is the folder of a mill with other brokers ({secret.parent.name}):"
                f" {elsewhere}",
                Exit.CONDITION,
            )
    stored = read_meta_properties(home.part_data(part) / "meta.properties").get("cluster.id")
    if stored not in (None, leaf.cluster_id):
        raise CommandError(
            f"{home.part_data(part)} has the data of cluster {stored}, and the file is for cluster"
            f" {leaf.cluster_id}: move the folder away, or {elsewhere}",
            Exit.CONDITION,
        )
    if lifecycle.is_running(home):
        raise CommandError("the mill runs on this host: `./millrace down` stops it", Exit.CONDITION)


def is_config_present(home: Home, wanted: MillConfig) -> bool:
    """Return True if the host has a configuration with the sections of the join file, and False if
    it has none or the shipped one without changes. Raises CommandError for any other. In
    containers this command cannot write the file, so CommandError is raised instead of False.
    """
    path = home.config_file
    if is_config_untouched(home):
        if home.in_containers:
            # Compose mounts the folder read-only.
            raise CommandError(
                "configs/millrace.yaml is missing or still the shipped file: copy it from the main"
                " host first",
                Exit.CONDITION,
            )
        return False
    try:
        found = load(path, home.folder).config
    except ConfigFaults as error:
        raise CommandError(
            f"{path} has a fault, and join does not change it: {error.faults[0]}", Exit.CONDITION
        ) from error
    if different := _different(found, wanted, in_containers=home.in_containers):
        if home.in_containers:
            raise CommandError(
                f"configs/millrace.yaml differs from that of the main host in"
                f" {', '.join(different)}: copy that file to this host",
                Exit.CONDITION,
            )
        raise CommandError(
            f"{path} differs from the configuration of the main host in {', '.join(different)}, and"
            " join does not change it: write the sections cluster, topics, network, security and"
            " ports as they are there, or move the file away",
            Exit.CONDITION,
        )
    return True


def _different(found: MillConfig, wanted: MillConfig, *, in_containers: bool) -> list[str]:
    """Return the keys of the common sections in which two configurations of a host differ.

    In containers `network.listen` is the address at which compose publishes on this machine.
    """
    own = ("network.listen",) if in_containers else ()
    found, wanted = of_this_host(found, Placement()), of_this_host(wanted, Placement())
    keys = []
    for section in SECTIONS:
        one, other = getattr(found, section), getattr(wanted, section)
        if section == "topics":
            keys += [] if one == other else [section]
            continue
        keys += [
            f"{section}.{key}"
            for key in type(one).model_fields
            if getattr(one, key) != getattr(other, key)
        ]
    return [key for key in keys if key not in own]


def write_files(home: Home, file: BrokerFile, *, with_config: bool) -> None:
    """Write the secrets and the certificate, then the configuration, then the record of the
    host. A broker that joins an existing cluster also gets the mark of a newcomer."""
    part = f"{BROKER_PREFIX}{file.leaf.broker}"
    home.data.mkdir(parents=True, exist_ok=True)
    home.secrets.mkdir(exist_ok=True)
    for name, value in (
        (f"{part}/cluster_id", file.leaf.cluster_id),
        (f"{part}/{LOGIN_SECRET}", file.login_secret),
        (ENTRY_PASSWORD, file.password),
    ):
        path = home.secrets / name
        path.parent.mkdir(mode=FOLDER_MODE, exist_ok=True)
        write_atomically(path, value.encode(), mode=PRIVATE)
    install(home, file.leaf)
    if with_config:
        home.config_file.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(home.config_file, file.config_text.encode(), mode=PUBLIC)
    if file.joins:
        mark_newcomer(home, file.leaf.broker)
    write_record(home, HostRecord(file.leaf.cluster_id, file.leaf.broker))


def install(home: Home, leaf: BrokerCertificate) -> None:
    """Write a broker's certificate, its key, and the CA for the broker and for clients. A running
    broker uses them for new connections."""
    folder = home.part_secrets(f"{BROKER_PREFIX}{leaf.broker}")
    for path in folder / TRUSTED, home.data / TRUSTED:
        write_trusted(home, path, leaf.ca.encode())
    write_leaf(folder, leaf.certificate.encode(), leaf.key.encode())
