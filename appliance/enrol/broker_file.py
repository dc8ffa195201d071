"""The files for the host of a broker: the join file, and the file with a new certificate.

This module is pure. A join file has everything that a host needs to run one broker of a mill: the
broker's certificate and key, the secrets that all brokers share, and the sections of the
configuration that are the same on each host. It never has the key of the CA. Anyone can write such
a file, so the host checks the sections as it checks a configuration.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from appliance.enrol.envelope import (
    kind_of,
    number_in,
    of_another_version,
    seal,
    text_in,
    unseal,
    wrong_kind,
)

BROKER = "broker"
CERTIFICATE = "certificate"

SECTIONS = ("cluster", "topics", "network", "security", "ports")
"""The sections that are the same on each host."""

JOIN_SENTENCE = (
    "This file makes one host a broker of the mill. Keep it secret. There type: millrace join FILE"
)
CERTIFICATE_SENTENCE = (
    "This file has a broker's new key. Keep it secret. On its host type: millrace cert install FILE"
)

_HOST = re.compile(r"[!-~]{1,253}")
"""A host as it stands in a comment of the configuration file: without a line end."""
_PEM = re.compile(r"[ -~\r\n]+")

_HEAD = """\
# Written by `millrace join`: the host of broker {broker}. The main host of the mill is {main}.
# These sections must be the same on each host.
"""


@dataclass(frozen=True, slots=True)
class BrokerCertificate:
    """A broker's certificate and its key, with the CA that has signed it, in PEM format."""

    cluster_id: str
    broker: int
    certificate: str
    key: str = field(repr=False)
    ca: str


@dataclass(frozen=True, slots=True)
class BrokerFile:
    """The content of a join file of a broker."""

    leaf: BrokerCertificate
    version: str
    """The version of millrace that runs on the main host."""
    main_host: str
    login_secret: str = field(repr=False)
    password: str = field(repr=False)
    """The password of the mill's own parts."""
    sections: Mapping[str, Any]
    joins: bool = False
    """True if the cluster exists and the broker does not vote in it, so it starts with an empty
    disk as a newcomer."""

    @property
    def config_text(self) -> str:
        """The configuration file of the host.

        Values are written as JSON, which is YAML too, so no text is taken for another value.
        """
        head = _HEAD.format(broker=self.leaf.broker, main=self.main_host)
        return head + "".join(
            f"{name}:{_yaml(self.sections[name])}" for name in SECTIONS if name in self.sections
        )


def _yaml(section: Any) -> str:
    if not isinstance(section, Mapping) or not section:
        return f" {_json(section)}\n"
    return "\n" + "".join(f"  {_json(key)}: {_json(value)}\n" for key, value in section.items())


def _json(value: Any) -> str:
    """Return a value as JSON in which `${` is no reference."""
    return json.dumps(value, ensure_ascii=False).replace("${", "$${")


def encode_broker(file: BrokerFile) -> str:
    """Return the text of a join file."""
    fields = {
        **_leaf_fields(file.leaf),
        "version": file.version,
        "main_host": file.main_host,
        "login_secret": file.login_secret,
        "password": file.password,
        "sections": dict(file.sections),
        "joins": file.joins,
    }
    return seal(BROKER, JOIN_SENTENCE, fields)


def parse_broker(text: str) -> BrokerFile:
    """Return the content of a join file of a broker. Raises JoinFileFault."""
    fields = _fields(text, BROKER)
    try:
        sections = fields["sections"]
        if not isinstance(sections, dict) or not sections.keys() <= set(SECTIONS):
            raise of_another_version()
        return BrokerFile(
            leaf=_leaf(fields),
            version=text_in(fields["version"]),
            main_host=text_in(fields["main_host"], _HOST),
            login_secret=text_in(fields["login_secret"]),
            password=text_in(fields["password"]),
            sections=sections,
            joins=fields.get("joins") is True,
        )
    except (KeyError, TypeError):
        raise of_another_version() from None


def encode_certificate(leaf: BrokerCertificate) -> str:
    """Return the text of a file with a new certificate."""
    return seal(CERTIFICATE, CERTIFICATE_SENTENCE, _leaf_fields(leaf))


def parse_certificate(text: str) -> BrokerCertificate:
    """Return the content of a file with a new certificate. Raises JoinFileFault."""
    fields = _fields(text, CERTIFICATE)
    try:
        return _leaf(fields)
    except (KeyError, TypeError):
        raise of_another_version() from None


def _fields(text: str, kind: str) -> dict[str, Any]:
    if (found := kind_of(text)) != kind:
        raise wrong_kind(found, kind)
    try:
        fields = unseal(text)
    except (ValueError, RecursionError):
        raise of_another_version() from None
    if not isinstance(fields, dict):
        raise of_another_version()
    return fields


def _leaf_fields(leaf: BrokerCertificate) -> dict[str, Any]:
    return {
        "cluster_id": leaf.cluster_id,
        "broker": leaf.broker,
        "certificate": leaf.certificate,
        "key": leaf.key,
        "ca": leaf.ca,
    }


def _leaf(fields: Mapping[str, Any]) -> BrokerCertificate:
    return BrokerCertificate(
        cluster_id=text_in(fields["cluster_id"]),
        broker=number_in(fields["broker"]),
        certificate=text_in(fields["certificate"], _PEM),
        key=text_in(fields["key"], _PEM),
        ca=text_in(fields["ca"], _PEM),
    )
