"""The ends of a mill's certificates, and the chain of the user's own certificate, for `doctor`."""

import ssl
from collections.abc import Collection, Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from appliance.checks.startup import Check, CheckLevel
from appliance.mill.certificates import shown
from appliance.mill.settings import Mill

if TYPE_CHECKING:
    from cryptography import x509


def ends(mill: Mill, now: datetime) -> Iterator[Check]:
    """Report each certificate with its end, and what to do if that is near."""
    if not mill.config.network.open:
        return
    for one in shown(mill.home, mill.config):
        level = CheckLevel.WARNING if one.is_due(now) else CheckLevel.OK
        found = one.end_text(now)
        remedy = one.remedy if one.is_due(now) else ""
        yield Check(level, f"certificate of {one.owner}", found, remedy)


def chain(mill: Mill) -> Iterator[Check]:
    """Warn if the file of the user's own certificate lacks the certificate of its CA.

    Browsers and clients know only the root CAs, so they refuse a certificate whose intermediate CA
    is not in the file. With `network.tls.ca` the check at the start finds this.
    """
    own = mill.config.network.tls
    if not mill.config.network.open or own.certificate is None or own.ca is not None:
        return
    from cryptography import x509

    path = mill.home.folder / own.certificate
    try:
        sent = x509.load_pem_x509_certificates(path.read_bytes())
    except (OSError, ValueError):
        # The check at the start reports this.
        return
    missing = missing_issuer(sent, system_roots())
    if missing is not None:
        yield Check(
            CheckLevel.WARNING,
            "network.tls.certificate",
            f"{path} has no certificate of the CA {missing.rfc4514_string()}, and this machine does"
            " not know this CA, so browsers and clients refuse the certificate",
            "write the certificate with its whole chain into the file, such as fullchain.pem of"
            " certbot; if only clients trust this CA, name its file in network.tls.ca",
        )


def missing_issuer(
    sent: "Sequence[x509.Certificate]", roots: "Collection[x509.Name]"
) -> "x509.Name | None":
    """Return the CA whose certificate is missing between the first certificate and the roots.

    None if the chain is whole, or if the first certificate is self-signed.
    """
    last, others = sent[0], list(sent[1:])
    while last.issuer != last.subject and last.issuer not in roots:
        following = next((one for one in others if one.subject == last.issuer), None)
        if following is None:
            return last.issuer
        others.remove(following)
        last = following
    return None


def system_roots() -> "set[x509.Name]":
    """Return the names of the root CAs that this machine trusts."""
    from cryptography import x509

    found = ssl.create_default_context().get_ca_certs(binary_form=True)
    return {x509.load_der_x509_certificate(one).subject for one in found}
