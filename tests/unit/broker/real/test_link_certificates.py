"""The certificate files for links between brokers: refusals with their messages, the reload, and
the problems in the status."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from broker.config import TlsFiles
from broker.real.link_certificates import LinkCertificates
from broker.real.tls_engine import CertificateRefused
from broker.settings import ConfigError
from tests.harness.certificates import (
    CLUSTER_ID,
    TestAuthority,
    new_test_authority,
    one_sided_leaf,
)
from tests.unit.broker.real.test_tls_engine import shake
from tests.unit.broker.real.tls_world import let_end


def certificates(files: TlsFiles, node_id: int = 1) -> LinkCertificates:
    return LinkCertificates(files, CLUSTER_ID, node_id)


def fault(files: TlsFiles, node_id: int = 1) -> tuple[str, str]:
    """Return the key and the message of the only fault."""
    with pytest.raises(ConfigError) as caught:
        certificates(files, node_id)
    ((key, found, expected),) = caught.value.faults
    return key, f"{found}; expected {expected}"


def serial(one: LinkCertificates, other: LinkCertificates) -> str:
    """Return the serial number of the certificate that `one` shows to `other`."""
    client, server = one.to_broker(2), other.from_broker()
    shake(client, server)
    shown = server._tls.getpeercert()
    assert shown is not None
    return str(shown["serialNumber"])


def texts(current: LinkCertificates) -> list[str]:
    assert {one.code for one in current.problems()} <= {"link_certificate"}
    return [one.text for one in current.problems()]


def test_a_good_certificate_is_no_problem(authority: TestAuthority) -> None:
    assert texts(certificates(authority.write())) == []


@pytest.mark.parametrize("usage", ["serverAuth", "clientAuth"])
def test_pitfall_26_a_certificate_for_one_side_only(authority: TestAuthority, usage: str) -> None:
    """The broker reports such a certificate when it starts, and not only when the first connection
    fails."""
    key, said = fault(authority.write(pair=one_sided_leaf(authority, usage)))
    assert key == "link_tls.certificate"
    assert "expected a certificate for servers and for clients (extended key usage)" in said


@pytest.mark.parametrize(
    ("names", "organisation", "said"),
    [
        (("broker-2",), CLUSTER_ID, "is of broker 2, expected broker 1"),
        (("localhost",), CLUSTER_ID, "names no broker"),
        (("broker-1", "broker-2"), CLUSTER_ID, "names broker-1, broker-2"),
        (("broker-1",), "another", f"is of another, expected cluster {CLUSTER_ID}"),
    ],
)
def test_pitfall_14_a_broker_starts_with_its_own_certificate_only(
    authority: TestAuthority, names: tuple[str, ...], organisation: str, said: str
) -> None:
    wrong = authority.leaf("broker-1", names, organisation=organisation)
    key, text = fault(authority.write(pair=wrong))
    assert key == "link_tls.certificate"
    assert said in text


def test_pitfall_28_host_names_do_not_matter(authority: TestAuthority) -> None:
    """A host can change its name and its address without a new certificate."""
    certificates(authority.write(pair=authority.leaf(names=("broker-1",))))


def test_a_certificate_of_another_ca(authority: TestAuthority, tmp_path: Path) -> None:
    other = new_test_authority(tmp_path / "other")
    key, said = fault(authority.write(pair=other.leaf()))
    assert key == "link_tls.certificate"
    assert "expected a certificate that a CA of link_tls.ca has signed" in said


def test_a_ca_of_the_system_does_not_count(
    authority: TestAuthority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = new_test_authority(tmp_path / "other")
    monkeypatch.setenv("SSL_CERT_FILE", str(other.file))
    _, said = fault(authority.write(pair=other.leaf()))
    assert "unable to get local issuer certificate" in said


def test_pitfall_27_validity(authority: TestAuthority) -> None:
    now = datetime.now(UTC)
    certificates(authority.write(pair=authority.leaf(now=now + timedelta(hours=1))))
    _, early = fault(authority.write(pair=authority.leaf(now=now + timedelta(days=3))))
    assert "certificate is not yet valid" in early
    _, late = fault(authority.write(pair=authority.over()))
    assert "certificate has expired" in late
    assert "`millrace cert renew`" in late


def test_a_missing_file(authority: TestAuthority) -> None:
    files = authority.write()
    Path(files.key).unlink()
    key, said = fault(files)
    assert key == "link_tls.key"
    assert f"{files.key}: No such file or directory" in said


def test_a_replaced_certificate_is_used_by_both_sides(authority: TestAuthority) -> None:
    one, other = (certificates(authority.write(f"broker-{each}"), each) for each in (1, 2))
    first = serial(one, other)
    assert serial(one, other) == first
    authority.write("broker-1")
    assert serial(one, other) != first
    authority.write("broker-2")
    client = one.to_broker(2)
    shake(client, other.from_broker())
    assert client.peer_id == 2


def foreign_key(authority: TestAuthority, files: TlsFiles) -> None:
    Path(files.key).write_bytes(authority.leaf().key)


def of_another_broker(authority: TestAuthority, files: TlsFiles) -> None:
    authority.write("broker-1", authority.leaf("broker-2"))


def of_another_ca(authority: TestAuthority, files: TlsFiles) -> None:
    other = new_test_authority(authority.folder / "other")
    authority.write("broker-1", other.leaf("broker-1"))


def ended(authority: TestAuthority, files: TlsFiles) -> None:
    authority.write("broker-1", authority.over())


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (foreign_key, "which is not the key of"),
        (of_another_broker, "is of broker 2, expected broker 1"),
        (of_another_ca, "unable to get local issuer certificate"),
        (ended, "certificate has expired"),
    ],
)
def test_pitfall_25_a_wrong_new_certificate_is_a_problem_and_the_old_one_stays(
    authority: TestAuthority,
    caplog: pytest.LogCaptureFixture,
    spoil: Callable[[TestAuthority, TlsFiles], None],
    said: str,
) -> None:
    files = authority.write("broker-1")
    one, other = certificates(files), certificates(authority.write("broker-2"), 2)
    first = serial(one, other)
    spoil(authority, files)
    (text,) = texts(one)
    assert "the new certificate of this broker is not used" in text
    assert said in text
    assert serial(one, other) == first
    assert len([each for each in caplog.records if each.levelname == "ERROR"]) == 1
    authority.write("broker-1")
    assert texts(one) == []
    assert serial(one, other) != first


def test_pitfall_24_a_certificate_that_ends_while_the_broker_runs(
    authority: TestAuthority,
) -> None:
    """The others refuse it, the broker names its own file, and a new one needs no restart."""
    one, other = (certificates(authority.write(f"broker-{each}"), each) for each in (1, 2))
    let_end(one, authority, 1)
    with pytest.raises(CertificateRefused, match="certificate has expired"):
        serial(one, other)
    (text,) = texts(one)
    assert f"{one.files.certificate}, ended on 1970-01-02" in text
    assert "run `./millrace cert renew`. No restart is needed" in text
    authority.write("broker-1")
    assert texts(one) == []
    assert serial(one, other)
