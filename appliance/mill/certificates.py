"""The files of the mill's CA and of its brokers' certificates, below `data/secrets`.

The CA's key stays in `ca/`, which belongs to no part. Each broker has its own certificate, its own
key and a copy of the CA's certificate, because in containers the brokers run as different users.
`data/ca.pem` is the copy that clients trust; it is no secret.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from appliance.config.model import MillConfig, NetworkSection
from appliance.errors import Failure
from appliance.machine.files import PRIVATE, PUBLIC, write_atomically
from appliance.mill.home import Home
from appliance.mill.init import FOLDER_MODE, read_secret
from appliance.mill.parts import BROKER_PREFIX, LOOPBACK, broker_names

if TYPE_CHECKING:
    from appliance.mill.authority import KeyPair

AUTHORITY = "ca"
AUTHORITY_KEY = "ca.key"
CERTIFICATE, KEY, TRUSTED = "tls.pem", "tls.key", "ca.pem"

OWN_NAMES = (LOOPBACK, "localhost")
"""The names of a broker on its own machine, which every certificate has."""

WARN_DAYS = 60

CA_OWNER = "CA"
"""The owner of the CA's certificate, as `cert show` names it."""


class CertificateFault(Failure):
    """Raised when certificates cannot be made or read. The text says why."""


@dataclass(frozen=True, slots=True)
class ShownCertificate:
    """The content of one certificate file, to be shown to people."""

    owner: str
    path: Path
    names: tuple[str, ...]
    ends_at: datetime
    fault: str = ""
    """The reason why the file cannot be read. In this case there are no names and no end."""
    is_own: bool = False
    """True if the file is the user's own, so that only the user can replace it."""

    def days_left(self, now: datetime) -> int:
        """Return the whole days until the certificate ends; negative if it has ended."""
        return (self.ends_at - now).days

    def is_due(self, now: datetime) -> bool:
        """Return whether the certificate ends soon, has ended, or cannot be read."""
        return bool(self.fault) or self.days_left(now) < WARN_DAYS

    @property
    def remedy(self) -> str:
        """A sentence that says what to do about a certificate that is due."""
        if self.is_own:
            return f"write a new one to {self.path}; the brokers use it without a restart"
        if self.owner == CA_OWNER:
            return (
                f"move {self.path.parent} away, run `./millrace cert renew`,"
                " and give clients the new data/ca.pem"
            )
        return "`./millrace cert renew` makes a new one"


def tls_files(home: Home, network: NetworkSection, broker: str) -> dict[str, str | None]:
    """Return the paths of a broker's certificate, key and CA, for its settings.

    The user's own paths are relative to the mill's folder.
    """
    if network.tls.certificate is None or network.tls.key is None:
        return dict(link_files(home, broker))
    own = {"certificate": network.tls.certificate, "key": network.tls.key, "ca": network.tls.ca}
    return {name: str(home.folder / path) if path else None for name, path in own.items()}


def link_files(home: Home, broker: str) -> dict[str, str]:
    """Return the paths of the files that the mill's own CA has made for a broker. Brokers show them
    to each other."""
    folder = home.part_secrets(broker)
    return {
        "certificate": str(folder / CERTIFICATE),
        "key": str(folder / KEY),
        "ca": str(folder / TRUSTED),
    }


def has_authority_key(home: Home) -> bool:
    """Return True if the key of the mill's CA is on this machine."""
    return (home.secrets / AUTHORITY / AUTHORITY_KEY).exists()


def client_trust(home: Home, network: NetworkSection) -> str | None:
    """Return the file with the CA that clients of the listener NET trust; None: the CAs of this
    machine."""
    if network.tls.certificate is None:
        return str(home.data / TRUSTED)
    return None if network.tls.ca is None else str(home.folder / network.tls.ca)


def make_needed(home: Home, config: MillConfig, now: datetime) -> list[Path]:
    """Make the certificates and the copies of the CA that the configuration needs.

    A broker gets a new certificate if its files are missing, do not belong together, come from
    another CA, have ended, or do not have the configured names. Returns the files that were
    written. Raises CertificateFault.
    """
    if not config.network.opens_kafka or config.network.tls.certificate is not None:
        return []
    brokers = broker_names(config)
    written: list[Path] = []
    try:
        authority = _restore_copies(home, brokers, written)
        due = [one for one in brokers if _is_due(home, one, config.network.names, authority, now)]
    except OSError as error:
        raise CertificateFault(f"the certificates cannot be checked: {error}") from error
    return written + (renew(home, due, config.network.names, now) if due else [])


def _restore_copies(home: Home, brokers: Sequence[str], written: list[Path]) -> bytes | None:
    """Write the copies of the CA's certificate that are missing or outdated. Return the
    certificate; None without a CA."""
    copies = [home.data / TRUSTED, *(home.part_secrets(broker) / TRUSTED for broker in brokers)]
    certificate = home.secrets / AUTHORITY / TRUSTED
    source = next((path for path in (certificate, *copies) if path.exists()), None)
    key = home.secrets / AUTHORITY / AUTHORITY_KEY
    if source is None or (source == certificate and not key.exists() and _is_unused(home, source)):
        return None
    found = source.read_bytes()
    for path in copies:
        if not path.exists() or path.read_bytes() != found:
            _write_copy(home, path, found, written)
    return found


def _write_copy(home: Home, path: Path, certificate: bytes, written: list[Path]) -> None:
    """Write one copy of the CA's certificate. The copy for clients is readable by everyone."""
    is_public = path.parent == home.data
    write_atomically(path, certificate, mode=PUBLIC if is_public else PRIVATE)
    _give(path, path.parent)
    written.append(path)


def _is_unused(home: Home, certificate: Path) -> bool:
    """Return whether no client and no broker has the CA of this certificate.

    In this case `cert renew` was killed before it had written the CA's key.
    """
    copies = [home.data / TRUSTED, *home.secrets.glob(f"{BROKER_PREFIX}*/{TRUSTED}")]
    found = certificate.read_bytes()
    return not any(path.exists() and path.read_bytes() == found for path in copies)


def _is_due(
    home: Home, broker: str, names: Sequence[str], authority: bytes | None, now: datetime
) -> bool:
    """Return whether a broker needs a new certificate."""
    from appliance.mill.authority import leaf_names

    folder = home.part_secrets(broker)
    try:
        pair = (folder / CERTIFICATE).read_bytes(), (folder / KEY).read_bytes()
    except FileNotFoundError:
        return True
    found = None if authority is None else leaf_names(*pair, authority, now)
    wanted = set(_all_names(broker, names))
    if found is None or not wanted <= found:
        return True
    # A certificate with a superfluous name still works. So it is replaced only if the key of the CA
    # is on this machine.
    return found != wanted and has_authority_key(home)


def _all_names(broker: str, names: Sequence[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*names, *OWN_NAMES, broker)))


def renew(home: Home, brokers: Sequence[str], names: Sequence[str], now: datetime) -> list[Path]:
    """Make a new certificate for each broker; make the CA too, if there is none.

    Returns the files that were written. A broker that runs uses them for new connections. Raises
    CertificateFault.
    """
    # Import this module only here. The import takes a tenth of a second, and few commands need it.
    from appliance.mill.authority import LEAF_DAYS, STAGGER_DAYS, LeafRequest, new_leaf

    written: list[Path] = []
    try:
        authority = _authority(home, read_secret(home, f"{brokers[0]}/cluster_id"), now, written)
        for broker in brokers:
            cluster_id = read_secret(home, f"{broker}/cluster_id")
            number = int(broker.rpartition("-")[2])
            days = LEAF_DAYS - STAGGER_DAYS * ((number - 1) % 3)
            request = LeafRequest(broker, cluster_id, _all_names(broker, names), days)
            leaf = new_leaf(authority, request, now)
            folder = home.part_secrets(broker)
            _write_copy(home, folder / TRUSTED, authority.certificate, written)
            # Write the key first. Until the certificate is written too, the broker keeps using the
            # old pair.
            for name, content in ((KEY, leaf.key), (CERTIFICATE, leaf.certificate)):
                write_atomically(folder / name, content, mode=PRIVATE)
                _give(folder / name, folder)
                written.append(folder / name)
    except (OSError, ValueError) as error:
        raise CertificateFault(f"no certificate was made: {error}") from error
    return written


def _give(path: Path, folder: Path) -> None:
    """Give a file to the owner of its folder. Only root can do this, and only root needs to."""
    owner = folder.stat()
    if path.stat().st_uid != owner.st_uid:
        os.chown(path, owner.st_uid, owner.st_gid)


def _authority(home: Home, cluster_id: str, now: datetime, written: list[Path]) -> "KeyPair":
    """Return the CA; make it if there is none.

    The certificate is written before the key, and the copies after the key. So if there are no
    copies, the creation of the CA was interrupted, and the CA is made again.
    """
    from appliance.mill.authority import KeyPair, new_authority

    folder, public = home.secrets / AUTHORITY, home.data / TRUSTED
    key, certificate = folder / AUTHORITY_KEY, folder / TRUSTED
    if key.exists():
        kept = next((path for path in (certificate, public) if path.exists()), None)
        if kept is None:
            raise CertificateFault(
                f"{certificate}, the certificate of the CA, is missing; restore it, or move "
                f"{folder} away to begin with another CA"
            )
        pair = KeyPair(kept.read_bytes(), key.read_bytes())
    elif certificate.exists() and not _is_unused(home, certificate):
        raise CertificateFault(
            f"{key}, the key of the CA, is missing, and without it no certificate can be "
            "signed; restore it, or move the folder away to begin with another CA"
        )
    else:
        folder.mkdir(mode=FOLDER_MODE, exist_ok=True)
        pair = new_authority(cluster_id, now)
        write_atomically(certificate, pair.certificate, mode=PRIVATE)
        write_atomically(key, pair.key, mode=PRIVATE)
        written += [certificate, key]
    if not public.exists() or public.read_bytes() != pair.certificate:
        _write_copy(home, public, pair.certificate, written)
    return pair


def shown(home: Home, config: MillConfig) -> list[ShownCertificate]:
    """Return the certificates that the brokers use and those of their CA, if there are any.

    If the configuration names files of the user's own, return these.
    """
    own = config.network.tls
    if own.certificate is not None:
        named = [(CA_OWNER, own.ca), ("brokers", own.certificate)]
        found = [_shown(owner, home.folder / path) for owner, path in named if path is not None]
        return [replace(one, is_own=True) for one in found]
    places = [(CA_OWNER, home.secrets / AUTHORITY / TRUSTED)]
    places += [(one, home.part_secrets(one) / CERTIFICATE) for one in broker_names(config)]
    return [_shown(owner, path) for owner, path in places if path.exists()]


def _shown(owner: str, path: Path) -> ShownCertificate:
    from cryptography import x509

    from appliance.mill.authority import names_of

    try:
        found = x509.load_pem_x509_certificate(path.read_bytes())
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not a certificate in PEM format"
        return ShownCertificate(owner, path, (), datetime.min.replace(tzinfo=UTC), str(reason))
    return ShownCertificate(owner, path, names_of(found), found.not_valid_after_utc)
