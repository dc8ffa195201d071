"""The join file of a collector: everything that a host needs to join a mill, in a file that can be
pasted.

This module is pure. The file has a secret, so no message and no `repr` contains its content.

The CRC32 of the file finds damage, but anyone can write a join file. So `parse` accepts only names
and addresses that have no meaning as YAML, as a reference (`${…}`) or to a terminal.
"""

import re
from dataclasses import dataclass, field
from typing import Any

from appliance.enrol.envelope import (
    ANY_TEXT,
    JoinFileFault,
    kind_of,
    number_in,
    of_another_version,
    seal,
    text_in,
    unseal,
    wrong_kind,
)
from protocol.security.scram import MECHANISMS, Mechanism

KIND = "collector"
CA_CHARS_MAX = 128 << 10
"""The most characters of the CAs in a join file. In base64 they take a third more."""

_ADDRESS = re.compile(r"[A-Za-z0-9._:%\[\]-]+")

SENTENCE = "This file lets one host in, once. Keep it secret. On that host type: millrace join FILE"


@dataclass(frozen=True, slots=True)
class JoinFile:
    """The content of a join file of a collector."""

    cluster_id: str
    name: str
    group: str
    addresses: tuple[str, ...]
    """`host:port` of the listeners with logins, under all names of the mill."""
    ca: str | None
    """The CA of the brokers' certificates in PEM format; None: the CAs of the machine."""
    user: str
    mechanism: Mechanism
    secret: str = field(repr=False)
    ends_ms: int
    """The wall time in milliseconds at which the secret expires, by the clock of the brokers."""
    topic: str
    """A topic that the collector may write, for the example in its configuration file."""
    commit_interval_ms: int
    """The shortest time in milliseconds between two commits of the collector."""


def encode(join: JoinFile) -> str:
    """Return the text of a join file."""
    fields = {
        "cluster_id": join.cluster_id,
        "name": join.name,
        "group": join.group,
        "addresses": list(join.addresses),
        "ca": join.ca,
        "user": join.user,
        "mechanism": join.mechanism.sasl_name,
        "secret": join.secret,
        "ends_ms": join.ends_ms,
        "topic": join.topic,
        "commit_interval_ms": join.commit_interval_ms,
    }
    return seal(KIND, SENTENCE, fields)


def parse(text: str) -> JoinFile:
    """Return the content of a join file. Raises JoinFileFault."""
    if (kind := kind_of(text)) != KIND:
        raise wrong_kind(kind, KIND)
    try:
        return _of_fields(unseal(text))
    except (ValueError, KeyError, TypeError, RecursionError):
        raise of_another_version() from None


def check_time(join: JoinFile, now_ms: int, now_text: str) -> None:
    """Raise JoinFileFault if the join file has expired by this host's clock."""
    if now_ms >= join.ends_ms:
        raise JoinFileFault(
            f"the join file of {join.name} has expired (this host's clock says {now_text}): "
            f"make another one with `millrace enrol collector {join.name} --again`"
        )


def _of_fields(fields: dict[str, Any]) -> JoinFile:
    """Return the join file with these fields. Unknown fields are ignored."""
    addresses = tuple(text_in(one, _ADDRESS) for one in fields["addresses"])
    if not addresses:
        raise ValueError("no addresses")
    return JoinFile(
        cluster_id=text_in(fields["cluster_id"]),
        name=text_in(fields["name"]),
        group=text_in(fields["group"]),
        addresses=addresses,
        ca=None if fields["ca"] is None else text_in(fields["ca"], ANY_TEXT),
        user=text_in(fields["user"]),
        mechanism=MECHANISMS[fields["mechanism"]],
        secret=text_in(fields["secret"], ANY_TEXT),
        ends_ms=number_in(fields["ends_ms"]),
        topic=text_in(fields["topic"]),
        commit_interval_ms=number_in(fields["commit_interval_ms"]),
    )
