"""The certificate of a public CA: its chain must be in the file, and `doctor` warns in its time."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
from cryptography import x509

from appliance.checks import certificates, startup
from appliance.checks.certificates import chain, ends, missing_issuer
from appliance.checks.startup import CheckLevel
from appliance.config.load import load_text
from appliance.mill.home import find_home
from appliance.mill.parts import Placement
from appliance.mill.settings import Mill
from tests.harness.certificates import PublicCertificate, public_certificate

NAME = "mill.example.org"
OPEN = (
    "network: {open: [page], names: [mill.example.org], tls: {certificate: own.pem, key: own.key}}"
    "\nmonitor: {login: users}\n"
)


def mill(folder: Path, own: PublicCertificate, *, chained: bool = True) -> Mill:
    """Return a mill whose page has this certificate, with or without the intermediate CA."""
    (folder / "own.pem").write_bytes(own.leaf + own.intermediate * chained)
    (folder / "own.key").write_bytes(own.key)
    (folder / "own.key").chmod(0o600)
    config = load_text(OPEN, "mill.yaml", folder, {}).config
    return Mill(find_home({"MILLRACE_HOME": str(folder)}), config, Placement())


@pytest.fixture(autouse=True)
def roots(monkeypatch: pytest.MonkeyPatch) -> set[x509.Name]:
    """The root CAs that the machine of the test trusts."""
    known: set[x509.Name] = set()
    monkeypatch.setattr(certificates, "system_roots", lambda: known)
    return known


def test_a_whole_chain_is_well(tmp_path: Path, roots: set[x509.Name]) -> None:
    own = public_certificate(NAME)
    roots.add(x509.load_pem_x509_certificate(own.root).subject)
    assert list(chain(mill(tmp_path, own))) == []
    assert list(startup.own_certificate(mill(tmp_path, own))) == []


def test_a_missing_intermediate_certificate_is_named(tmp_path: Path, roots: set[x509.Name]) -> None:
    own = public_certificate(NAME)
    roots.add(x509.load_pem_x509_certificate(own.root).subject)
    [check] = chain(mill(tmp_path, own, chained=False))
    assert (check.level, check.what) == (CheckLevel.WARNING, "network.tls.certificate")
    assert "own.pem has no certificate of the CA CN=A Public Intermediate" in check.found
    assert "fullchain.pem" in check.remedy


def test_an_unknown_root_is_named(tmp_path: Path) -> None:
    [check] = chain(mill(tmp_path, public_certificate(NAME)))
    assert "the CA CN=A Public Root" in check.found


def test_a_certificate_that_signs_itself_has_no_issuer() -> None:
    root = x509.load_pem_x509_certificate(public_certificate(NAME).root)
    assert missing_issuer([root], ()) is None


def test_names_that_do_not_fit_are_a_fault(tmp_path: Path) -> None:
    [check] = startup.own_certificate(mill(tmp_path, public_certificate("other.example.org")))
    assert (check.level, check.what) == (CheckLevel.FAILED, "network.tls.certificate")
    assert "a certificate with mill.example.org among its names" in check.found


@pytest.mark.parametrize(
    ("age_days", "level"), [(0, CheckLevel.OK), (66, CheckLevel.OK), (70, CheckLevel.WARNING)]
)
def test_a_certificate_of_ninety_days_is_due_in_its_last_quarter(
    tmp_path: Path, age_days: int, level: CheckLevel
) -> None:
    found = mill(tmp_path, public_certificate(NAME, days=90, age_days=age_days))
    [check] = ends(found, datetime.now(UTC))
    assert (check.what, check.level) == ("certificate of page", level)
