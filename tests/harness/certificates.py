"""Certificates for tests, signed by the mill's own CA, in files as a broker reads them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

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
        names: Sequence[str] = NAMES,
        days: int = 397,
        now: datetime | None = None,
        organisation: str | None = None,
    ) -> KeyPair:
        """Return a certificate that the CA has signed, and its key."""
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
