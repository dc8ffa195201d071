"""Certificates for tests, signed by the mill's own CA, in files as a broker reads them."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from appliance.mill.authority import KeyPair, LeafRequest, new_authority, new_leaf
from broker.config import TlsFiles

CLUSTER_ID = "bWlsbHJhY2UtdGVzdHMtMQ"
NAMES = ("127.0.0.1", "localhost")


@dataclass(frozen=True)
class TestAuthority:
    """One CA, and the folder for its certificates."""

    __test__ = False

    folder: Path
    pair: KeyPair
    cluster_id: str = CLUSTER_ID

    @property
    def file(self) -> Path:
        """Return the file of the CA that clients trust."""
        return self.folder / "ca.pem"

    def leaf(
        self,
        common_name: str = "broker-1",
        names: Sequence[str] | None = None,
        days: int = 397,
        now: datetime | None = None,
        organisation: str | None = None,
    ) -> KeyPair:
        """Return a certificate that the CA has signed, and its key.

        Without `names` it has the names of the loopback and its common name.
        """
        names = (*NAMES, common_name) if names is None else names
        request = LeafRequest(common_name, organisation or self.cluster_id, names, days)
        return new_leaf(self.pair, request, now or datetime.now(UTC))

    def write(self, name: str = "broker-1", pair: KeyPair | None = None) -> TlsFiles:
        """Write a certificate and its key. Without `pair`, make a valid certificate for `name`."""
        pair = pair or self.leaf(name)
        certificate, key = self.folder / f"{name}.pem", self.folder / f"{name}.key"
        for path, content in ((certificate, pair.certificate), (key, pair.key)):
            # Rename each file into place, as `millrace cert renew` does.
            made = path.with_suffix(".new")
            made.write_bytes(content)
            made.chmod(0o600)
            made.replace(path)
        return TlsFiles(certificate=str(certificate), key=str(key), ca=str(self.file))

    def over(self) -> KeyPair:
        """Return an expired certificate."""
        return self.leaf(days=2, now=datetime.now(UTC) - timedelta(days=10))


def new_test_authority(folder: Path, cluster_id: str = CLUSTER_ID) -> TestAuthority:
    """Create a CA and write its certificate."""
    folder.mkdir(parents=True, exist_ok=True)
    pair = new_authority(cluster_id, datetime.now(UTC))
    made = TestAuthority(folder, pair, cluster_id)
    made.file.write_bytes(pair.certificate)
    return made


@dataclass(frozen=True)
class PublicCertificate:
    """A certificate as a public CA makes it: signed by an intermediate CA, without the names of the
    loopback."""

    root: bytes
    """The certificate of the root CA, which alone clients know."""
    intermediate: bytes
    leaf: bytes
    key: bytes


def public_certificate(*names: str, days: int = 90, age_days: int = 0) -> PublicCertificate:
    """Return a certificate for these names, which is valid for `days`, `age_days` of them gone."""
    begin = datetime.now(UTC) - timedelta(days=age_days)
    keys = [ec.generate_private_key(ec.SECP256R1()) for _ in range(3)]
    subjects = [
        x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        for name in ("A Public Root", "A Public Intermediate", names[0])
    ]
    made = []
    for place, subject in enumerate(subjects):
        signer, is_ca = max(place - 1, 0), place < 2
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(subjects[signer])
            .public_key(keys[place].public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(begin)
            .not_valid_after(begin + timedelta(days=days if place == 2 else 4_000))
            .add_extension(x509.BasicConstraints(ca=is_ca, path_length=None), critical=True)
        )
        if not is_ca:
            shown = x509.SubjectAlternativeName([x509.DNSName(name) for name in names])
            builder = builder.add_extension(shown, critical=False)
        made.append(builder.sign(keys[signer], SHA256()).public_bytes(Encoding.PEM))
    key = keys[2].private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    root, intermediate, leaf = made
    return PublicCertificate(root, intermediate, leaf, key)


def one_sided_leaf(authority: TestAuthority, usage: str) -> KeyPair:
    """Return a certificate of broker 1 with one purpose only, which our own CA does not create."""
    folder = authority.folder
    (folder / "ca.key").write_bytes(authority.pair.key)
    (folder / "extensions").write_text(
        f"subjectAltName=DNS:localhost,DNS:broker-1\nextendedKeyUsage={usage}\nbasicConstraints=CA:FALSE\n"
    )
    key, asked, made = (folder / name for name in ("x.key", "x.csr", "x.pem"))
    subprocess.run(
        ["openssl", "req", "-new", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
         "-nodes", "-subj", f"/O={CLUSTER_ID}/CN=broker-1", "-keyout", key, "-out", asked],
        check=True, capture_output=True,
    )  # fmt: skip
    subprocess.run(
        ["openssl", "x509", "-req", "-in", asked, "-CA", authority.file, "-CAkey",
         folder / "ca.key", "-days", "9", "-extfile", folder / "extensions", "-out", made],
        check=True, capture_output=True,
    )  # fmt: skip
    return KeyPair(made.read_bytes(), key.read_bytes())
