"""The files of the mill's CA and of its parts' certificates, below `data/secrets`.

The CA's key stays in `ca/`, which belongs to no part. Each part with a certificate has its own key
and a copy of the CA's certificate, because in containers the parts run as different users.
`data/ca.pem` is the copy that clients trust; it is no secret.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from appliance.config.model import MillConfig
from appliance.config.network_section import SERVERS
from appliance.errors import Failure
from appliance.machine.files import PRIVATE, PUBLIC, write_atomically
from appliance.mill.certificate_holders import CertificateUse, Holder, local_holders
from appliance.mill.home import Home
from appliance.mill.hosts import read_record
from appliance.mill.init import FOLDER_MODE, read_secret
from appliance.mill.parts import (
    BROKER_PREFIX,
    main_broker,
)

if TYPE_CHECKING:
    from appliance.mill.authority import KeyPair

AUTHORITY = "ca"
CERTIFICATE, KEY, TRUSTED = "tls.pem", "tls.key", "ca.pem"

DEFAULT_ORGANISATION = "millrace"
"""The organisation in the certificates of a mill without brokers of its own."""

WARN_DAYS = 60
"""The days before its end at which a certificate is due."""

WARN_SHARE = 4
"""A certificate that is valid for a short time is due in the last quarter of this time. Programs
that renew such certificates do it earlier, with a third of the time left."""

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
    valid_days: int = WARN_DAYS * WARN_SHARE
    """The days between the moments at which the certificate begins and ends to be valid."""
    fault: str = ""
    """The reason why the file cannot be read. In this case there are no names and no end."""
    is_own: bool = False
    """True if the file is the user's own, so that only the user can replace it."""
    main_host: str | None = None
    """The host with the key of the CA, if it is another host than this one."""
    how_elsewhere: str = ""
    """What to type on the main host and here for a new certificate, if the main host is another."""
    in_containers: bool = False
    """True if the mill's parts are containers, so that the commands are those of compose."""

    def days_left(self, now: datetime) -> int:
        """Return the whole days until the certificate ends; negative if it has ended."""
        return (self.ends_at - now).days

    def is_due(self, now: datetime) -> bool:
        """Return whether the certificate ends soon, has ended, or cannot be read."""
        return bool(self.fault) or self.days_left(now) < min(
            WARN_DAYS, self.valid_days // WARN_SHARE
        )

    def end_text(self, now: datetime) -> str:
        """Return when the certificate ends, or the reason why the file cannot be read."""
        if self.fault:
            return self.fault
        left, day = self.days_left(now), f"{self.ends_at:%Y-%m-%d}"
        return f"ended on {day}" if left < 0 else f"ends on {day}, in {left} days"

    @property
    def remedy(self) -> str:
        """A sentence that says what to do about a certificate that is due."""
        if self.is_own:
            return f"write a new one to {self.path}; new connections use it without a restart"
        if self.owner == CA_OWNER and self.main_host is not None:
            return f"begin with another CA on {self.main_host}, and join this host again"
        if self.main_host is not None:
            return self.how_elsewhere
        renew, restart = "./millrace cert renew", "./millrace restart"
        removal = f"move {self.path.parent} away"
        if self.in_containers:
            renew, restart = "docker compose run --rm init cert renew", "docker compose restart"
            # The folder is a volume, which cannot be moved.
            find = f"find init {self.path.parent} -type f -delete"
            removal = f"delete its files with `docker compose run --rm --entrypoint {find}`"
        if self.owner == CA_OWNER:
            return f"{removal}, run `{renew}`, and give clients the new data/ca.pem"
        if self.owner in SERVERS:
            return f"`{renew}` makes a new one, and `{restart} {self.owner}` lets the server use it"
        return f"`{renew}` makes a new one"


def _needs(config: MillConfig, holder: Holder) -> bool:
    """Return whether a part cannot start without a certificate."""
    return holder.use is not CertificateUse.BROKER or config.network.opens_kafka


def make_needed(home: Home, config: MillConfig, now: datetime) -> list[Path]:
    """Make the certificates and the copies of the CA that the configuration needs.

    A part gets a new certificate if its files are missing, do not belong together, come from
    another CA, have ended, or do not have the configured names. Returns the files that were
    written. Raises CertificateFault.
    """
    holders = [one for one in local_holders(home, config) if _needs(config, one)]
    if not holders:
        return []
    written: list[Path] = []
    try:
        authority = _restore_copies(home, holders, written)
        due = [one for one in holders if _is_due(home, one, authority, now)]
    except OSError as error:
        raise CertificateFault(f"the certificates cannot be checked: {error}") from error
    if due and (main := _main_host_elsewhere(home, config)) is not None:
        raise CertificateFault(
            f"the certificate of {due[0].part} is missing, has ended, or does not have the names of"
            f" the configuration: {_elsewhere(home, due[0].part, main)}"
        )
    return written + (renew(home, due, now) if due else [])


def _main_host_elsewhere(home: Home, config: MillConfig) -> str | None:
    """Return the main host, which has the key of the CA; None if it is this machine."""
    hosts = config.cluster.hosts
    if hosts is None or home.authority_key.exists() or read_record(home) is None:
        return None
    return hosts[main_broker(config)]


def _elsewhere(home: Home, part: str, main: str) -> str:
    """Return what to do for a new certificate if the key of the CA is on another host."""
    return (
        f"`{home.writes(f'cert renew --for {part}', f'{part}.cert')}` on {main} writes a file, and"
        f" `{home.reads('cert install')}` here uses it"
    )


def _restore_copies(home: Home, holders: Sequence[Holder], written: list[Path]) -> bytes | None:
    """Write the copies of the CA's certificate that are missing or outdated. Return the
    certificate; None without a CA."""
    copies = [home.data / TRUSTED, *(home.part_secrets(one.part) / TRUSTED for one in holders)]
    certificate = home.secrets / AUTHORITY / TRUSTED
    source = next((path for path in (certificate, *copies) if path.exists()), None)
    key = home.authority_key
    if source is None or (source == certificate and not key.exists() and _is_unused(home, source)):
        return None
    found = source.read_bytes()
    for path in copies:
        if not path.exists() or path.read_bytes() != found:
            write_trusted(home, path, found)
            written.append(path)
    return found


def write_trusted(home: Home, path: Path, certificate: bytes) -> None:
    """Write one copy of the CA's certificate. The copy for clients is readable by everyone."""
    is_public = path.parent == home.data
    write_atomically(path, certificate, mode=PUBLIC if is_public else PRIVATE)
    _give(path, path.parent)


def _is_unused(home: Home, certificate: Path) -> bool:
    """Return whether no client and no part has the CA of this certificate.

    In this case `cert renew` was killed before it had written the CA's key.
    """
    copies = {home.data / TRUSTED, *home.secrets.glob(f"*/{TRUSTED}")} - {certificate}
    found = certificate.read_bytes()
    return not any(path.exists() and path.read_bytes() == found for path in copies)


def _is_due(home: Home, holder: Holder, authority: bytes | None, now: datetime) -> bool:
    """Return whether a part needs a new certificate."""
    from appliance.mill.authority import leaf_names

    folder = home.part_secrets(holder.part)
    try:
        pair = (folder / CERTIFICATE).read_bytes(), (folder / KEY).read_bytes()
    except FileNotFoundError:
        return True
    found = None if authority is None else leaf_names(*pair, authority, now)
    wanted = set(holder.all_names)
    if found is None or not wanted <= found:
        return True
    # A certificate with a superfluous name still works. So it is replaced only if the key of the CA
    # is on this machine.
    return found != wanted and home.authority_key.exists()


def renew(home: Home, holders: Sequence[Holder], now: datetime) -> list[Path]:
    """Make a new certificate for each part; make the CA too, if there is none.

    Returns the files that were written. A part that runs uses them for new connections. Raises
    CertificateFault.
    """
    written: list[Path] = []
    try:
        for holder in holders:
            authority, leaf = _signed(home, holder, now, written)
            folder = home.part_secrets(holder.part)
            write_trusted(home, folder / TRUSTED, authority)
            write_leaf(folder, leaf.certificate, leaf.key)
            written += [folder / TRUSTED, folder / KEY, folder / CERTIFICATE]
    except (OSError, ValueError) as error:
        raise CertificateFault(f"no certificate was made: {error}") from error
    return written


def leaf_for_another_host(home: Home, holder: Holder, now: datetime) -> tuple[bytes, "KeyPair"]:
    """Return the CA's certificate, and a new certificate with its key for a broker of another host.

    The new certificate and key are not written. If there is no CA yet, one is created and written.
    The public copy of the CA is restored if it is missing. Raises CertificateFault.
    """
    try:
        return _signed(home, holder, now, [])
    except (OSError, ValueError) as error:
        raise CertificateFault(f"no certificate was made: {error}") from error


def _signed(
    home: Home, holder: Holder, now: datetime, written: list[Path]
) -> tuple[bytes, "KeyPair"]:
    # Import this module only here. The import takes a tenth of a second, and few commands need it.
    from appliance.mill.authority import LeafRequest, new_leaf

    organisation = _organisation(home, [holder])
    authority = _authority(home, organisation, now, written)
    request = LeafRequest(
        holder.part,
        organisation,
        holder.all_names,
        _days(holder),
        is_client=holder.use is CertificateUse.BROKER,
    )
    return authority.certificate, new_leaf(authority, request, now)


def write_leaf(folder: Path, certificate: bytes, key: bytes) -> None:
    """Write a certificate and its key, the key first. Until the certificate is written too, the
    part keeps using the old pair."""
    for name, content in ((KEY, key), (CERTIFICATE, certificate)):
        write_atomically(folder / name, content, mode=PRIVATE)
        _give(folder / name, folder)


def _organisation(home: Home, holders: Sequence[Holder]) -> str:
    """Return the cluster's id, by which brokers recognise the certificates of their cluster.

    A mill without brokers of its own has none, and no broker looks at its certificates.
    """
    named = [one.part for one in holders if one.use is CertificateUse.BROKER]
    present = [one.parent.name for one in home.secrets.glob(f"{BROKER_PREFIX}*/cluster_id")]
    known = [*(one for one in named if one in present), *present, *named]
    return read_secret(home, f"{known[0]}/cluster_id") if known else DEFAULT_ORGANISATION


def _days(holder: Holder) -> int:
    """Return for how many days a new certificate is valid."""
    from appliance.mill.authority import LEAF_DAYS, STAGGER_DAYS

    if holder.use is not CertificateUse.BROKER:
        return LEAF_DAYS
    return LEAF_DAYS - STAGGER_DAYS * ((int(holder.part.removeprefix(BROKER_PREFIX)) - 1) % 3)


def _give(path: Path, folder: Path) -> None:
    """Give a file to the owner of its folder. Only root can do this, and only root needs to."""
    owner = folder.stat()
    if path.stat().st_uid != owner.st_uid:
        os.chown(path, owner.st_uid, owner.st_gid)


def _authority(home: Home, organisation: str, now: datetime, written: list[Path]) -> "KeyPair":
    """Return the CA; make it if there is none.

    The certificate is written before the key, and the copies after the key. So if there are no
    copies, the creation of the CA was interrupted, and the CA is made again.
    """
    from appliance.mill.authority import KeyPair, new_authority

    folder, public = home.secrets / AUTHORITY, home.data / TRUSTED
    key, certificate = home.authority_key, folder / TRUSTED
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
        pair = new_authority(organisation, now)
        write_atomically(certificate, pair.certificate, mode=PRIVATE)
        write_atomically(key, pair.key, mode=PRIVATE)
        written += [certificate, key]
    if not public.exists() or public.read_bytes() != pair.certificate:
        write_trusted(home, public, pair.certificate)
        written.append(public)
    return pair


def shown(home: Home, config: MillConfig) -> list[ShownCertificate]:
    """Return the certificates that the parts use and that of their CA, if there are any.

    If the configuration names files of the user's own for the brokers, return these too.
    """
    own, found = config.network.tls, []
    if own.certificate is not None:
        users = "page" if not config.network.opens_kafka else "brokers"
        if config.network.opens_kafka and config.network.opens_page:
            users = "brokers and page"
        named = [(CA_OWNER, own.ca), (users, own.certificate)]
        mine = [_shown(owner, home.folder / path) for owner, path in named if path is not None]
        found = [replace(one, is_own=True) for one in mine]
    holders = local_holders(home, config)
    if own.certificate is not None and not holders:
        return found
    main = _main_host_elsewhere(home, config)
    places = [(CA_OWNER, home.data / TRUSTED if main else home.secrets / AUTHORITY / TRUSTED)]
    places += [(one.part, home.part_secrets(one.part) / CERTIFICATE) for one in holders]
    of_mill = [_shown(owner, path) for owner, path in places if path.exists()]
    if main is not None:
        of_mill = [
            replace(one, main_host=main, how_elsewhere=_elsewhere(home, one.owner, main))
            for one in of_mill
        ]
    return found + [replace(one, in_containers=home.in_containers) for one in of_mill]


def _shown(owner: str, path: Path) -> ShownCertificate:
    from cryptography import x509

    from appliance.mill.authority import names_of

    try:
        found = x509.load_pem_x509_certificate(path.read_bytes())
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not a certificate in PEM format"
        never = datetime.min.replace(tzinfo=UTC)
        return ShownCertificate(owner, path, (), never, fault=str(reason))
    valid_days = (found.not_valid_after_utc - found.not_valid_before_utc).days
    return ShownCertificate(owner, path, names_of(found), found.not_valid_after_utc, valid_days)
