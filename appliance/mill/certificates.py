"""The files of the mill's CA and of its brokers' certificates, below `data/secrets`.

The CA's key stays in `ca/`, which belongs to no part. Each broker has its own certificate, its own
key and a copy of the CA's certificate, because in containers the brokers run as different users.
`data/ca.pem` is the copy that clients trust; it is no secret.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from appliance.config.model import MillConfig, NetworkSection
from appliance.errors import Failure
from appliance.machine.files import PRIVATE, write_atomically
from appliance.mill.home import Home
from appliance.mill.init import FOLDER_MODE, read_secret
from appliance.mill.parts import LOOPBACK, broker_names

if TYPE_CHECKING:
    from appliance.mill.authority import KeyPair

AUTHORITY = "ca"
CERTIFICATE, KEY, TRUSTED = "tls.pem", "tls.key", "ca.pem"

OWN_NAMES = (LOOPBACK, "localhost")
"""The names of a broker on its own machine, in every certificate."""

WARN_DAYS = 60


class CertificateFault(Failure):
    """Certificates cannot be made or read; the text says why."""


@dataclass(frozen=True, slots=True)
class ShownCertificate:
    """The contents of one certificate file, for people."""

    owner: str
    path: Path
    names: tuple[str, ...]
    ends_at: datetime
    fault: str = ""
    """The reason why the file cannot be read; then the rest is empty."""

    def days_left(self, now: datetime) -> int:
        """Return the whole days until it ends; negative when it has ended."""
        return (self.ends_at - now).days


def tls_files(home: Home, network: NetworkSection, broker: str) -> dict[str, str | None]:
    """Return the paths of a broker's certificate, key and CA, for its settings.

    Paths of the user's own are relative to the mill's folder.
    """
    if network.tls.certificate is None or network.tls.key is None:
        folder = home.part_secrets(broker)
        return {
            "certificate": str(folder / CERTIFICATE),
            "key": str(folder / KEY),
            "ca": str(folder / TRUSTED),
        }
    own = {"certificate": network.tls.certificate, "key": network.tls.key, "ca": network.tls.ca}
    return {name: str(home.folder / path) if path else None for name, path in own.items()}


def make_missing(home: Home, config: MillConfig, now: datetime) -> list[Path]:
    """Make the certificates that the configuration needs and that are not there.

    Returns the files that were written. Raises CertificateFault.
    """
    if not config.network.opens_kafka or config.network.tls.certificate is not None:
        return []
    lacking = [
        broker
        for broker in broker_names(config)
        if not all((home.part_secrets(broker) / name).exists() for name in (CERTIFICATE, KEY))
    ]
    return renew(home, lacking, config.network.names, now) if lacking else []


def renew(home: Home, brokers: Sequence[str], names: Sequence[str], now: datetime) -> list[Path]:
    """Make a new certificate for each broker; make the CA too, if there is none.

    Returns the files that were written. A broker that runs uses them for new connections. Raises
    CertificateFault.
    """
    # Imported here because it takes a tenth of a second, and few commands need it.
    from appliance.mill.authority import LEAF_DAYS, STAGGER_DAYS, LeafRequest, new_leaf

    written: list[Path] = []
    try:
        authority = _authority(home, read_secret(home, f"{brokers[0]}/cluster_id"), now, written)
        for broker in brokers:
            cluster_id = read_secret(home, f"{broker}/cluster_id")
            number = int(broker.rpartition("-")[2])
            all_names = tuple(dict.fromkeys((*names, *OWN_NAMES, broker)))
            days = LEAF_DAYS - STAGGER_DAYS * ((number - 1) % 3)
            leaf = new_leaf(authority, LeafRequest(broker, cluster_id, all_names, days), now)
            folder = home.part_secrets(broker)
            owner = folder.stat()
            for name, content in (
                (TRUSTED, authority.certificate),
                # First the key: in between, the broker keeps the old pair.
                (KEY, leaf.key),
                (CERTIFICATE, leaf.certificate),
            ):
                path = folder / name
                write_atomically(path, content, mode=PRIVATE)
                _give(path, owner.st_uid, owner.st_gid)
                written.append(path)
    except (OSError, ValueError) as error:
        raise CertificateFault(f"no certificate was made: {error}") from error
    return written


def _give(path: Path, uid: int, gid: int) -> None:
    """Give a file to the part whose folder it is in. Only root can, and only root needs to."""
    if path.stat().st_uid != uid:
        os.chown(path, uid, gid)


def _authority(home: Home, cluster_id: str, now: datetime, written: list[Path]) -> "KeyPair":
    from appliance.mill.authority import KeyPair, new_authority

    folder = home.secrets / AUTHORITY
    key, certificate = folder / "ca.key", folder / "ca.pem"
    if key.exists():
        pair = KeyPair(certificate.read_bytes(), key.read_bytes())
    elif certificate.exists():
        raise CertificateFault(
            f"{key} is not here, and only it can sign certificates;"
            " bring it back, or move the folder away to begin with another CA"
        )
    else:
        folder.mkdir(mode=FOLDER_MODE, exist_ok=True)
        pair = new_authority(cluster_id, now)
        write_atomically(key, pair.key, mode=PRIVATE)
        write_atomically(certificate, pair.certificate, mode=PRIVATE)
        written += [key, certificate]
    public = home.data / "ca.pem"
    if not public.exists() or public.read_bytes() != pair.certificate:
        write_atomically(public, pair.certificate)
        written.append(public)
    return pair


def shown(home: Home, brokers: Sequence[str]) -> list[ShownCertificate]:
    """Return the CA's certificate and the brokers', as far as they are there."""
    places = [("CA", home.secrets / AUTHORITY / "ca.pem")]
    places += [(broker, home.part_secrets(broker) / CERTIFICATE) for broker in brokers]
    return [_shown(owner, path) for owner, path in places if path.exists()]


def _shown(owner: str, path: Path) -> ShownCertificate:
    from cryptography import x509

    try:
        found = x509.load_pem_x509_certificate(path.read_bytes())
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not a certificate in PEM format"
        return ShownCertificate(owner, path, (), datetime.min.replace(tzinfo=UTC), str(reason))
    try:
        named = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        names = tuple(str(one.value) for one in named)
    except x509.ExtensionNotFound:
        names = ()
    return ShownCertificate(owner, path, names, found.not_valid_after_utc)
