"""A mill on three hosts, for unit tests: its file, its folders, and which host this machine is."""

from collections.abc import Mapping
from pathlib import Path

from appliance.config.load import load_text
from appliance.mill.home import Home, find_home
from appliance.mill.hosts import HostRecord, write_record
from appliance.mill.settings import Mill
from broker.quorum.snapshot import BOOTSTRAP, build_snapshot, file_name
from broker.quorum.voters import Endpoint, ReplicaKey, Voter, VoterSet
from protocol.types import Uuid

HOSTS = {1: "mill-1.example.org", 2: "mill-2.example.org", 3: "mill-3.example.org"}
STATED = "hosts: {1: mill-1.example.org, 2: mill-2.example.org, 3: mill-3.example.org}"
OPEN = "network: {open: [kafka], listen: 0.0.0.0, login: users}"
TEXT = f"cluster: {{brokers: 3, {STATED}}}\n{OPEN}\n"
LOCAL = TEXT.replace(STATED, "hosts: {1: 127.0.0.1, 2: 127.0.0.2, 3: 127.0.0.3}")
"""The same mill with loopback addresses, which are those of this machine."""

CLUSTER_ID = "AAAAAAAAAAAAAAAAAAAAAA"


def home_of(folder: Path) -> Home:
    return find_home({"MILLRACE_HOME": str(folder)})


def joined(folder: Path, broker: int) -> None:
    """Write the record of a host that has joined."""
    home = home_of(folder)
    home.secrets.mkdir(parents=True, exist_ok=True)
    write_record(home, HostRecord(CLUSTER_ID, broker))


def write_secrets(folder: Path, broker: int) -> None:
    """Write the secrets that `join` writes."""
    secrets = home_of(folder).secrets
    for name in (f"broker-{broker}/cluster_id", f"broker-{broker}/login_secret", "mill/password"):
        (secrets / name).parent.mkdir(parents=True, exist_ok=True)
        (secrets / name).write_text(CLUSTER_ID)


def has_authority(folder: Path) -> None:
    """Write the key of a CA, as the main host has it."""
    place = home_of(folder).secrets / "ca"
    place.mkdir(parents=True, exist_ok=True)
    (place / "ca.key").write_text("key")


def mill(folder: Path, text: str = TEXT) -> Mill:
    home = home_of(folder)
    return Mill.of(home, load_text(text, "mill.yaml", folder, {}).config)


def write_voters(home: Home, broker: int, addresses: Mapping[int, str]) -> None:
    """Write the snapshot with the voters of the cluster into the folder of a broker."""
    voters = VoterSet(
        Voter(ReplicaKey(number, Uuid(int=number)), (Endpoint("BROKER", host, 29091),))
        for number, host in addresses.items()
    )
    folder = home.part_data(f"broker-{broker}") / "__cluster_metadata-0"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / file_name(BOOTSTRAP)).write_bytes(build_snapshot(BOOTSTRAP, voters, (), 0))
