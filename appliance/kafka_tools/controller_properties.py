"""The properties file of a controller.

`kafka-metadata-quorum add-controller` reads the node to add from this file: its id, the id of its
data folder, and its addresses.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from appliance.kafka_tools.base import parse_properties
from appliance.output import CommandError, Exit
from protocol.security.address import bracketed
from protocol.types import Uuid, uuid_from_base64

NODE_ID = "node.id"
ROLES = "process.roles"
METADATA_FOLDER = "metadata.log.dir"
FOLDERS = "log.dirs"
LISTENERS = "listeners"
ADVERTISED = "advertised.listeners"
CONTROLLER_LISTENERS = "controller.listener.names"

CONTROLLER_PROPERTIES = frozenset(
    {NODE_ID, ROLES, METADATA_FOLDER, FOLDERS, LISTENERS, ADVERTISED, CONTROLLER_LISTENERS}
)
"""The properties that this module reads."""

DOUBT = "Is this a valid controller configuration file?"

_LISTENER = re.compile(r"([A-Za-z0-9_.-]+)://(?:\[([0-9A-Fa-f:.%]+)\]|([^\[\]:]*)):(\d{1,5})")


@dataclass(frozen=True, slots=True)
class ControllerEndpoint:
    """One address of a controller, with the name of its listener."""

    name: str
    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.name}://{bracketed(self.host)}:{self.port}"


@dataclass(frozen=True, slots=True)
class ControllerNode:
    """A controller: its id, the id of its data folder, and its addresses."""

    node_id: int
    directory_id: Uuid
    endpoints: tuple[ControllerEndpoint, ...]


def controller_of(properties: Mapping[str, str]) -> ControllerNode:
    """Return the controller that a properties file describes. Raises CommandError.

    The id of the data folder is in the folder's meta.properties, so the command must run on the
    machine with the folder.
    """
    node_id = _node_id(properties)
    directory_id = _directory_id(_folder(properties))
    return ControllerNode(node_id, directory_id, _endpoints(properties))


def _node_id(properties: Mapping[str, str]) -> int:
    found = properties.get(NODE_ID)
    if found is None:
        raise _wrong(f"{NODE_ID} not found in configuration file. {DOUBT}")
    try:
        node_id = int(found)
    except ValueError:
        raise _wrong(f"{NODE_ID} is {found!r}, expected a number. {DOUBT}") from None
    if node_id < 0:
        raise _wrong(f"{NODE_ID} was negative in configuration file. {DOUBT}")
    if "controller" not in properties.get(ROLES, ""):
        raise _wrong(f"{ROLES} did not contain 'controller' in configuration file. {DOUBT}")
    return node_id


def _folder(properties: Mapping[str, str]) -> Path:
    folder = properties.get(METADATA_FOLDER) or properties.get(FOLDERS, "").split(",")[0].strip()
    if not folder:
        raise _wrong(f"Neither {METADATA_FOLDER} nor {FOLDERS} were found. {DOUBT}")
    return Path(folder)


def _directory_id(folder: Path) -> Uuid:
    try:
        found = parse_properties((folder / "meta.properties").read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError):
        raise _wrong(f"Unable to read meta.properties from {folder}") from None
    try:
        return uuid_from_base64(found.get("directory.id", ""))
    except ValueError:
        raise _wrong(f"No directory id found in {folder}") from None


def _endpoints(properties: Mapping[str, str]) -> tuple[ControllerEndpoint, ...]:
    if CONTROLLER_LISTENERS not in properties:
        raise _wrong(f"{CONTROLLER_LISTENERS} was not found. {DOUBT}")
    known = {one.name: one for key in (LISTENERS, ADVERTISED) for one in _listed(properties, key)}
    names = [one.strip().upper() for one in properties[CONTROLLER_LISTENERS].split(",")]
    for name in names:
        if name not in known:
            raise _wrong(f"Cannot find information about controller listener name: {name}")
    return tuple(known[name] for name in names)


def _listed(properties: Mapping[str, str], key: str) -> list[ControllerEndpoint]:
    """Return the addresses in a list of listeners. An empty host is this host, as in Kafka."""
    endpoints = []
    for text in filter(None, (one.strip() for one in properties.get(key, "").split(","))):
        match = _LISTENER.fullmatch(text)
        if match is None or int(match[4]) > 65_535:
            raise _wrong(f"{key} has {text!r}, expected NAME://HOST:PORT")
        host = match[2] or match[3] or "localhost"
        endpoints.append(ControllerEndpoint(match[1].upper(), host, int(match[4])))
    return endpoints


def _wrong(text: str) -> CommandError:
    return CommandError(text, Exit.USAGE)
