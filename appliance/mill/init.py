"""Creates the cluster id and all secrets once. They never change afterwards.

`make up` runs this module, and so does a compose service for which the other services wait. Each
file is written atomically, and only its owner can read it. Existing files are not changed, so a
second run, even at the same time, changes nothing.
"""

import os
import secrets as randomness
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from appliance.errors import Failure
from appliance.machine.files import PUBLIC, create_once, write_atomically
from appliance.mill.home import CODE, Home
from protocol.types import random_uuid, uuid_to_base64

PASSWORD_BYTES = 24
FOLDER_MODE = 0o700
SHARED_FOLDER_MODE, SHARED_MODE = 0o750, 0o640
SCHEMA_FILE = "millrace.schema.json"
"""The JSON Schema beside the configuration file. The first line of the configuration file names it
for editors."""

LOGIN_SECRET = "login_secret"
"""The secret from which brokers make the salts of unknown users. It is the same for all brokers."""

MYSQL, REDIS = "mysql", "redis"
ENTRY = "mill"
"""The folder of what the mill's own parts need to log in to brokers on several hosts."""
ENTRY_PASSWORD = f"{ENTRY}/password"
"""The password of the mill's own parts for brokers on several hosts."""

MYSQL_USERS = ("root", "mill", "reader")
READERS = "readers"
"""The folder with the passwords of the readers on other machines, one for each server."""

COPIES = {
    "stream/mysql": "mysql/mill",
    "stream/redis": "redis/password",
    "monitor/mysql": "mysql/reader",
    "monitor/redis": "redis/monitor",
}
"""The secrets that several parts read, each in a separate copy.

In containers the parts run as different users.
"""


class InitError(Failure):
    """Raised when ids or secrets cannot be created. The text says why."""


@dataclass(frozen=True, slots=True)
class CreatedSecrets:
    """The ids and secrets that `init` has created in this run, by path below `data/secrets`."""

    names: tuple[str, ...]


def initialise(
    home: Home, broker_ids: Iterable[int], *, has_entry_user: bool = False
) -> CreatedSecrets:
    """Create the ids and secrets that are missing. `has_entry_user` is true if the mill's own parts
    log in to its brokers."""
    made: list[str] = []
    parts = [f"broker-{number}" for number in broker_ids]
    folders = [*parts, "collector", "stream", "monitor", "mysql", "redis"]
    _make_folder(home.data, 0o755)
    _make_folder(home.secrets, 0o755)
    for name in folders:
        _make_folder(home.secrets / name, FOLDER_MODE)

    cluster_id = _cluster_id(home, parts)
    login_secret = _kept(home, parts, LOGIN_SECRET) or _new_password()
    for part in parts:
        _create(home, f"{part}/cluster_id", cluster_id, made)
        _create(home, f"{part}/{LOGIN_SECRET}", login_secret, made)
    for user in MYSQL_USERS:
        _create(home, f"mysql/{user}", _new_password(), made)
    for name in ("password", "monitor"):
        _create(home, f"redis/{name}", _new_password(), made)
    _create(home, "monitor/admin", _new_password(), made)
    if has_entry_user:
        _make_folder((home.secrets / ENTRY_PASSWORD).parent, FOLDER_MODE)
        _create(home, ENTRY_PASSWORD, _new_password(), made)
    for copy, original in COPIES.items():
        _create(home, copy, read_secret(home, original), made)
    return CreatedSecrets(tuple(made))


def write_shipped_config(home: Home) -> bool:
    """Write the shipped configuration file if this mill has none yet; return whether it was
    written.

    In a clone the file exists already. An installed mill gets the file here, together with the
    folders that the file watches, and the schema that its first line names for editors. Raises
    InitError when a folder or the file cannot be written.
    """
    shipped = CODE / "configs" / "millrace.yaml"
    if not shipped.is_file():
        return False
    schema = shipped.with_name(SCHEMA_FILE).read_bytes()
    place = home.config_file.with_name(SCHEMA_FILE)
    if home.config_file.exists():
        # An earlier version can have written the schema. Only editors need it, so a folder that
        # cannot be written is not a fault.
        with suppress(OSError):
            if place.read_bytes() != schema:
                write_atomically(place, schema)
        return False
    _make_folder(home.config_file.parent, 0o755)
    for name in ("access", "json", "text"):
        _make_folder(home.folder / "watched" / name, 0o755)
    create_once(place, schema, mode=PUBLIC)
    return create_once(home.config_file, shipped.read_bytes(), mode=PUBLIC)


def is_config_untouched(home: Home) -> bool:
    """Return True if the mill has no configuration file, or the shipped one without changes."""
    path, shipped = home.config_file, CODE / "configs" / "millrace.yaml"
    if not path.exists():
        return True
    return shipped.is_file() and path.read_bytes() == shipped.read_bytes()


def read_secret(home: Home, name: str) -> str:
    """Read a secret or id by its path below `data/secrets`. Raises InitError when it is missing."""
    try:
        text = (home.secrets / name).read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        if not home.secrets.exists():
            raise InitError(
                f"no mill was ever started in {home.folder}; start it with `make up`"
            ) from error
        reason = getattr(error, "strerror", None) or "its content is not ASCII text"
        raise InitError(
            f"data/secrets/{name} cannot be read: {reason}; `millrace init` creates missing files"
        ) from error
    if not text:
        raise InitError(f"data/secrets/{name} is empty; remove it and run `millrace init`")
    return text


def read_meta_properties(path: Path) -> dict[str, str]:
    """Read meta.properties, the broker's file that says to which broker a data folder belongs.
    Return an empty dictionary if it is missing."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return {}
    pairs = (line.partition("=") for line in text.splitlines() if not line.startswith("#"))
    return {key.strip(): value.strip() for key, separator, value in pairs if separator}


def _cluster_id(home: Home, parts: list[str]) -> str:
    """Return the cluster id from the secrets or from a broker's data folder. If there is none,
    return a new id.
    """
    if kept := _kept(home, parts, "cluster_id"):
        return kept
    for part in parts:
        found = read_meta_properties(home.part_data(part) / "meta.properties").get("cluster.id")
        if found:
            return found
    return _new_id()


def renew_readers(home: Home, opened: Collection[str]) -> list[str]:
    """Make a password for the readers of each server that is opened. Remove those of the others, so
    that a server that is opened again gets a new one. Return the names of the new secrets.

    Parts never read these secrets, only the servers do when they start. Raises InitError.
    """
    made: list[str] = []
    folder = home.secrets / READERS
    for server in MYSQL, REDIS:
        if server in opened:
            _make_folder(folder, FOLDER_MODE)
            _create(home, f"{READERS}/{server}", _new_password(), made)
        else:
            (folder / server).unlink(missing_ok=True)
    return made


def _kept(home: Home, parts: list[str], name: str) -> str:
    """Return a secret that all brokers share, as the first broker with the secret has it; empty if
    no broker has it."""
    for part in parts:
        if (home.secrets / part / name).exists():
            return read_secret(home, f"{part}/{name}")
    return ""


def _create(home: Home, name: str, value: str, made: list[str]) -> None:
    # Write no line end after the value, because the database images use the whole file as the
    # password.
    if create_once(home.secrets / name, value.encode()):
        made.append(name)


def _make_folder(folder: Path, mode: int) -> None:
    try:
        folder.mkdir(mode=mode, parents=True, exist_ok=True)
    except OSError as error:
        raise InitError(f"{folder} cannot be created or written: {error.strerror}") from error


def give(home: Home, owners: Mapping[str, tuple[int, int]]) -> None:
    """Change the owner of each part's secrets to the user and group as which the part runs. Only
    root can do this."""
    for part, (user, group) in owners.items():
        folder = home.part_secrets(part)
        for path in (*folder.iterdir(), folder):
            # Another container can be writing a file there.
            with suppress(FileNotFoundError):
                os.chown(path, user, group, follow_symlinks=False)


def share_entry(home: Home) -> None:
    """In containers, let all parts read how they log in: the password, and a copy of the CA.

    The parts run as different users of one group. Only the owner of the folder, root, can do this.
    Nothing is done if the parts do not log in.
    """
    folder, trusted = home.part_secrets(ENTRY), home.data / "ca.pem"
    if not (home.in_containers and folder.is_dir()):
        return
    copy = folder / trusted.name
    if trusted.exists() and not (copy.exists() and copy.read_bytes() == trusted.read_bytes()):
        write_atomically(copy, trusted.read_bytes(), mode=SHARED_MODE)
    group = folder.stat().st_gid
    for path in folder.iterdir():
        # Another container can be writing a file there.
        with suppress(FileNotFoundError):
            os.chown(path, -1, group)
            path.chmod(SHARED_MODE)
    folder.chmod(SHARED_FOLDER_MODE)


def _new_id() -> str:
    return uuid_to_base64(random_uuid(os.urandom(16)))


def _new_password() -> str:
    return randomness.token_urlsafe(PASSWORD_BYTES)
