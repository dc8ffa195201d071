"""The files of a host that has joined a mill: its password, and the record of where it joined.

They are in `data/secrets/collector`, with mode 0600. `joined.json` is written before the first
password, so a folder never has a password without the id of its cluster.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from appliance.enrol.plan import Secret
from appliance.machine.files import PRIVATE, locked, sync_folder, write_atomically
from appliance.mill.home import Home
from appliance.mill.init import FOLDER_MODE
from appliance.output import CommandError, Exit

PART = "collector"
MACHINE_ID = Path("/etc/machine-id")

_FILES = {Secret.PENDING: "pending", Secret.PASSWORD: "password"}
_FORMAT = 1


@dataclass(frozen=True, slots=True)
class Joined:
    """Where the host has joined, or has begun to join."""

    cluster_id: str
    name: str
    machine_id: str | None
    """The id of the machine (`/etc/machine-id`); None if it has none."""


class HostFiles:
    """The secrets of one host, and the record of its cluster."""

    def __init__(self, home: Home, machine_id_file: Path = MACHINE_ID) -> None:
        self.folder = home.part_secrets(PART)
        self._home = home
        self._machine_id_file = machine_id_file

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Refuse a second `join` on this host with CommandError. It could replace the pending
        password while the first one sends that password to the brokers."""
        self._make_folder()
        with locked(self.folder / "lock") as is_alone:
            if not is_alone:
                raise CommandError("another `join` of this host is running")
            yield

    def machine_id(self) -> str | None:
        """Return the id of this machine; None if it has none."""
        try:
            return self._machine_id_file.read_text().strip() or None
        except OSError:
            return None

    def joined(self) -> Joined | None:
        """Return where this host has joined; None if it has not. Raises CommandError."""
        path = self.folder / "joined.json"
        try:
            found = json.loads(path.read_text())
            return Joined(found["cluster_id"], found["name"], found["machine_id"])
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError) as error:
            raise CommandError(
                f"{path} cannot be read, so it is unknown to which mill this folder belongs:"
                " move the folder away and join again",
                Exit.CONDITION,
            ) from error

    def note(self, joined: Joined) -> None:
        """Write where this host joins."""
        self._make_folder()
        fields = {
            "v": _FORMAT,
            "cluster_id": joined.cluster_id,
            "name": joined.name,
            "machine_id": joined.machine_id,
        }
        data = json.dumps(fields).encode() + b"\n"
        write_atomically(self.folder / "joined.json", data, mode=PRIVATE)

    def has(self, secret: Secret) -> bool:
        """Return True if the file of this secret exists."""
        return (self.folder / _FILES[secret]).exists()

    def read(self, secret: Secret) -> str:
        """Return a secret."""
        return (self.folder / _FILES[secret]).read_text().strip()

    def write_pending(self, password: str) -> None:
        """Write a password that the brokers do not know yet."""
        self._make_folder()
        path = self.folder / _FILES[Secret.PENDING]
        write_atomically(path, password.encode() + b"\n", mode=PRIVATE)

    def adopt(self) -> None:
        """Rename the pending password to the password."""
        pending = self.folder / _FILES[Secret.PENDING]
        pending.replace(self.folder / _FILES[Secret.PASSWORD])
        sync_folder(self.folder)

    def has_brokers(self) -> bool:
        """Return True if this folder is that of a mill with brokers of its own."""
        return any(self._home.secrets.glob("broker-*/cluster_id"))

    def _make_folder(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.folder.chmod(FOLDER_MODE)
