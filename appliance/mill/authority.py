"""The mill's own certificate authority: a key that signs the certificates of the mill's parts.

This module is pure: the time is an argument, and results are bytes in PEM format. `certificates`
writes the files. It uses the library `cryptography`, which the mill needs for MySQL's passwords too
(decision 0126).
"""

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

AUTHORITY_DAYS = 3_650
LEAF_DAYS = 397
"""The number of days for which a certificate is valid: the longest time that common clients
accept."""

STAGGER_DAYS = 30
"""The number of days between the ends of the certificates of two brokers. If all ended together,
the brokers would lose their quorum."""

SKEW = timedelta(days=1)
"""A certificate is valid from this time before it is made, for machines whose clocks are slow."""


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A certificate and its private key."""

    certificate: bytes
    key: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class LeafRequest:
    """The contents of a certificate for one part."""

    common_name: str
    organisation: str
    names: Sequence[str]
    """The host names and IP addresses by which clients reach the part."""
    days: int = LEAF_DAYS
    is_client: bool = True
    """True if the part also connects to others with the certificate, as brokers do."""


def new_authority(cluster_id: str, now: datetime) -> KeyPair:
    """Return a new authority. It can sign certificates of parts, but no other authorities."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = _name("Millrace CA", cluster_id)
    public = key.public_key()
    identifier = x509.SubjectKeyIdentifier.from_public_key(public)
    builder = (
        _dated(x509.CertificateBuilder(), now, now + timedelta(days=AUTHORITY_DAYS))
        .subject_name(name)
        .issuer_name(name)
        .public_key(public)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .add_extension(identifier, critical=False)
        # Python 3.13 refuses an authority without this extension (VERIFY_X509_STRICT).
        .add_extension(_issued_by(identifier), critical=False)
    )
    return _signed(builder, key, key)


def new_leaf(authority: KeyPair, request: LeafRequest, now: datetime) -> KeyPair:
    """Return a new certificate and its key, for a part as a server, and if requested as a client.

    The certificate ends no later than the certificate of the authority. Raises ValueError.
    """
    signer = load_pem_private_key(authority.key, None)
    issuer = x509.load_pem_x509_certificate(authority.certificate)
    if not isinstance(signer, ec.EllipticCurvePrivateKey):
        raise ValueError("the key of the CA is not an elliptic-curve key")
    if signer.public_key() != issuer.public_key():
        raise ValueError("the key of the CA does not belong to its certificate")
    authority_ends = issuer.not_valid_after_utc
    if authority_ends <= now:
        raise ValueError(
            f"the CA's certificate ended on {authority_ends:%Y-%m-%d}; move data/secrets/ca "
            "away to begin with another CA, and give clients the new data/ca.pem"
        )
    ends_at = min(now + timedelta(days=request.days), authority_ends)
    key = ec.generate_private_key(ec.SECP256R1())
    public = key.public_key()
    purposes = [ExtendedKeyUsageOID.SERVER_AUTH]
    if request.is_client:
        purposes.append(ExtendedKeyUsageOID.CLIENT_AUTH)
    identifier = issuer.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    builder = (
        _dated(x509.CertificateBuilder(), now, ends_at)
        .subject_name(_name(request.common_name, request.organisation))
        .issuer_name(issuer.subject)
        .public_key(public)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
        .add_extension(
            x509.SubjectAlternativeName([_general_name(name) for name in request.names]),
            critical=False,
        )
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
        .add_extension(_issued_by(identifier), critical=False)
    )
    return _signed(builder, key, signer)


def leaf_names(certificate: bytes, key: bytes, authority: bytes, now: datetime) -> set[str] | None:
    """Return the names in a certificate; None if the certificate cannot be used.

    A certificate can be used if it is valid now, its key belongs to it, and the authority has
    signed it.
    """
    try:
        found = x509.load_pem_x509_certificate(certificate)
        issuer = x509.load_pem_x509_certificate(authority)
        if load_pem_private_key(key, None).public_key() != found.public_key():
            return None
        found.verify_directly_issued_by(issuer)
    except (ValueError, TypeError, InvalidSignature):
        return None
    if not found.not_valid_before_utc <= now < found.not_valid_after_utc:
        return None
    return set(names_of(found))


def names_of(certificate: x509.Certificate) -> tuple[str, ...]:
    """Return the host names and IP addresses of a certificate."""
    try:
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except x509.ExtensionNotFound:
        return ()
    return tuple(str(one.value) for one in found.value)


def _dated(
    builder: x509.CertificateBuilder, now: datetime, ends_at: datetime
) -> x509.CertificateBuilder:
    return builder.not_valid_before(now - SKEW).not_valid_after(ends_at)


def _name(common_name: str, organisation: str) -> x509.Name:
    return x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, organisation),
            x509.NameAttribute(NameOID.COMMON_NAME, common_name),
        ]
    )


def _general_name(name: str) -> x509.GeneralName:
    """Return a name for the certificate: an IP name for an address, because clients compare
    addresses only with IP names, else a DNS name."""
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _issued_by(identifier: x509.SubjectKeyIdentifier) -> x509.AuthorityKeyIdentifier:
    return x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier)


def _signed(
    builder: x509.CertificateBuilder,
    key: ec.EllipticCurvePrivateKey,
    signer: ec.EllipticCurvePrivateKey,
) -> KeyPair:
    certificate = builder.serial_number(x509.random_serial_number()).sign(signer, hashes.SHA256())
    return KeyPair(
        certificate.public_bytes(Encoding.PEM),
        key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()),
    )
