"""A broker's certificate files: the refusals with their messages, and the effect of a reload."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from broker.config import BrokerConfig, Listener, TlsFiles
from broker.real.certificates import Certificates, checked_context
from broker.real.tls_engine import TlsEngine, TlsError
from broker.settings import ConfigError
from tests.harness.certificates import (
    CLUSTER_ID,
    TestAuthority,
    new_test_authority,
    one_sided_leaf,
)
from tests.unit.broker.real.test_tls_engine import client_context, shake


def certificates(files: TlsFiles, name: str = "localhost") -> Certificates:
    """Load the certificates of a broker that clients reach by this name."""
    address = Listener(
        host="127.0.0.1", port=1, advertised_host=name, advertised_port=1, security_protocol="SSL"
    )
    config = BrokerConfig(
        part="broker-1",
        node_id=1,
        cluster_id=CLUSTER_ID,
        log_dir="",
        listeners={"NET": address},
        status_host="",
        status_port=0,
        tls=files,
    )
    return Certificates(config, files)


def fault(files: TlsFiles, name: str = "localhost") -> tuple[str, str]:
    """Return the key and the message of the only fault."""
    with pytest.raises(ConfigError) as caught:
        certificates(files, name)
    ((key, found, expected),) = caught.value.faults
    return key, f"{found}; expected {expected}"


def serial(current: Certificates, authority: TestAuthority) -> str:
    """Return the serial number of the certificate that a new client gets."""
    client = TlsEngine(client_context(authority), server_name="localhost")
    shake(client, current.for_client())
    shown = client._tls.getpeercert()
    assert shown is not None
    return str(shown["serialNumber"])


def test_a_good_pair_is_taken(authority: TestAuthority) -> None:
    certificates(authority.write())


def test_a_pair_of_a_ca_that_clients_know_needs_no_ca_here(authority: TestAuthority) -> None:
    files = authority.write()
    certificates(TlsFiles(certificate=files.certificate, key=files.key))


@pytest.mark.parametrize("which", ["certificate", "key", "ca"])
def test_a_missing_file(authority: TestAuthority, which: str) -> None:
    files = authority.write()
    path = Path(getattr(files, which))
    path.unlink()
    key, said = fault(files)
    assert key == f"tls.{which}"
    assert said == (f"{path}: No such file or directory; expected a file that this broker can read")


def test_the_key_of_another_certificate(authority: TestAuthority) -> None:
    files, other = authority.write(), authority.leaf()
    Path(files.key).write_bytes(other.key)
    key, said = fault(files)
    assert key == "tls.key"
    assert f"{files.key}, which is not the key of {files.certificate}" in said


def test_a_key_that_others_can_read(authority: TestAuthority) -> None:
    files = authority.write()
    Path(files.key).chmod(0o640)
    key, said = fault(files)
    assert key == "tls.key"
    assert said == (
        f"{files.key} with mode 0640, so other users can read it;"
        f" expected mode 0600: chmod 600 {files.key}"
    )


@pytest.mark.parametrize(
    ("which", "what"),
    [("certificate", "certificate"), ("key", "private key"), ("ca", "certificate")],
)
def test_what_is_not_pem(authority: TestAuthority, which: str, what: str) -> None:
    files = authority.write()
    path = Path(getattr(files, which))
    path.write_bytes(b"\x30\x82\x01\x00")
    key, said = fault(files)
    assert key == f"tls.{which}"
    assert said == f"{path}, which contains no {what}; expected a {what} in PEM format"


def test_pem_of_nonsense(authority: TestAuthority) -> None:
    files = authority.write()
    text = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
    Path(files.certificate).write_text(text)
    key, said = fault(files)
    assert key == "tls.certificate"
    assert said.endswith("expected a certificate and its key in PEM format")


def test_a_key_with_a_passphrase_is_refused_and_not_asked_for(authority: TestAuthority) -> None:
    files = authority.write()
    made = subprocess.run(
        ["openssl", "pkcs8", "-topk8", "-passout", "pass:x", "-in", files.key],
        check=True,
        capture_output=True,
    )
    Path(files.key).write_bytes(made.stdout)
    key, said = fault(files)
    assert key == "tls.key"
    assert said == f"{files.key}, which is encrypted; expected a private key without a passphrase"


def test_a_certificate_that_is_over(authority: TestAuthority) -> None:
    files = authority.write(pair=authority.over())
    key, said = fault(files)
    assert key == "tls.certificate"
    assert "certificate has expired" in said
    assert "`millrace cert renew`" in said


def test_pitfall_27_a_certificate_that_is_not_valid_yet(authority: TestAuthority) -> None:
    files = authority.write(pair=authority.leaf(now=datetime.now(UTC) + timedelta(days=3)))
    key, said = fault(files)
    assert key == "tls.certificate"
    assert "certificate is not yet valid" in said


def test_pitfall_27_a_clock_that_is_an_hour_late_does_no_harm(authority: TestAuthority) -> None:
    certificates(authority.write(pair=authority.leaf(now=datetime.now(UTC) + timedelta(hours=1))))


@pytest.mark.parametrize(
    ("names", "asked"),
    [
        (("mill.example.org",), "localhost"),
        # An IP address is compared only with the IP addresses in the certificate.
        (("localhost",), "127.0.0.1"),
    ],
)
def test_pitfall_28_a_certificate_of_another_name(
    authority: TestAuthority, names: tuple[str, ...], asked: str
) -> None:
    key, said = fault(authority.write(pair=authority.leaf(names=names)), asked)
    assert key == "tls.certificate"
    assert "mismatch" in said
    assert f"expected a certificate with {asked} among its names" in said


def test_pitfall_28_an_ip_address_of_either_family(authority: TestAuthority) -> None:
    files = authority.write(pair=authority.leaf(names=("::1", "127.0.0.1")))
    for name in ("::1", "127.0.0.1"):
        certificates(files, name)


def test_pitfall_26_for_clients_alone_the_side_of_the_server_is_enough(
    authority: TestAuthority,
) -> None:
    certificates(authority.write(pair=one_sided_leaf(authority, "serverAuth")))


def test_a_certificate_of_another_ca(authority: TestAuthority, tmp_path: Path) -> None:
    other = new_test_authority(tmp_path / "other")
    key, said = fault(authority.write(pair=other.leaf()))
    assert key == "tls.certificate"
    assert "expected a certificate that a CA of tls.ca has signed" in said


def test_a_replaced_certificate_is_used_for_new_connections(authority: TestAuthority) -> None:
    files = authority.write()
    current = certificates(files)
    first = serial(current, authority)
    assert serial(current, authority) == first
    authority.write()
    assert serial(current, authority) != first


def test_new_files_that_are_not_used_are_a_problem_of_the_status(
    authority: TestAuthority,
) -> None:
    current = certificates(authority.write())
    assert current.problems() == []
    authority.write(pair=authority.over())
    (problem,) = current.problems()
    assert problem.code == "certificate"
    assert "the new certificate for clients is not used: tls.certificate: found" in problem.text
    authority.write()
    assert current.problems() == []


def test_pitfall_24_it_is_renewed_after_its_end_without_a_restart(
    authority: TestAuthority,
) -> None:
    current = certificates(authority.write())
    # The broker loaded this certificate while it was valid.
    current._watched._value = checked_context(authority.write("over", authority.over()), ())
    with pytest.raises(TlsError, match="certificate has expired"):
        serial(current, authority)
    authority.write()
    assert serial(current, authority)


def foreign_key(authority: TestAuthority, files: TlsFiles) -> None:
    Path(files.key).write_bytes(authority.leaf().key)


def broken_file(authority: TestAuthority, files: TlsFiles) -> None:
    Path(files.certificate).write_text("half of a fi")


def lost_name(authority: TestAuthority, files: TlsFiles) -> None:
    authority.write(pair=authority.leaf(names=("mill.example.org",)))


def removed_file(authority: TestAuthority, files: TlsFiles) -> None:
    Path(files.key).unlink()


def ended(authority: TestAuthority, files: TlsFiles) -> None:
    authority.write(pair=authority.over())


@pytest.mark.parametrize("spoil", [foreign_key, broken_file, lost_name, removed_file, ended])
def test_pitfall_25_a_broken_pair_keeps_the_old_one_and_says_so_once(
    authority: TestAuthority,
    caplog: pytest.LogCaptureFixture,
    spoil: Callable[[TestAuthority, TlsFiles], None],
) -> None:
    files = authority.write()
    current = certificates(files)
    first = serial(current, authority)
    spoil(authority, files)
    assert serial(current, authority) == first
    assert serial(current, authority) == first
    said = [one.getMessage() for one in caplog.records if one.levelname == "ERROR"]
    assert said == ["the new certificate is invalid; the broker keeps using the old one"]
    authority.write()
    assert serial(current, authority) != first


def test_pitfall_25_a_swapped_link_is_noticed(authority: TestAuthority) -> None:
    """Kubernetes updates a secret in this way: the symbolic link points to another folder."""
    one, two = authority.folder / "one", authority.folder / "two"
    for folder in (one, two):
        folder.mkdir()
        pair = authority.leaf()
        (folder / "tls.crt").write_bytes(pair.certificate)
        (folder / "tls.key").write_bytes(pair.key)
        (folder / "tls.key").chmod(0o600)
    link, other = authority.folder / "now", authority.folder / "later"
    link.symlink_to(one)
    files = TlsFiles(
        certificate=str(link / "tls.crt"), key=str(link / "tls.key"), ca=str(authority.file)
    )
    current = certificates(files)
    first = serial(current, authority)
    other.symlink_to(two)
    other.replace(link)
    assert serial(current, authority) != first


def test_a_key_whose_mode_is_repaired_is_taken(authority: TestAuthority) -> None:
    """For example, root writes a file and gives it to the broker's user a moment later."""
    files = authority.write()
    current = certificates(files)
    first = serial(current, authority)
    authority.write()
    Path(files.key).chmod(0o640)
    assert serial(current, authority) == first
    Path(files.key).chmod(0o600)
    assert serial(current, authority) != first


def test_a_client_of_another_ca_refuses_it(authority: TestAuthority, tmp_path: Path) -> None:
    other = new_test_authority(tmp_path / "other")
    client = TlsEngine(client_context(other), server_name="localhost")
    with pytest.raises(TlsError, match="unable to get local issuer"):
        shake(client, certificates(authority.write()).for_client())
