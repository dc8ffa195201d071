"""The texts, the log lines and the problems of refused links, without a socket."""

from __future__ import annotations

from typing import Any

import pytest

from broker.metrics.warnings import REASONS_MAX, Warnings
from broker.real.link_refusals import (
    ENDS_MIN,
    SHOWN_MAX,
    SHOWN_MS,
    SUBJECTS_MAX,
    LinkRefusals,
)
from broker.real.tls_engine import CertificateRefused, RefusedByPeer, TlsError, WithoutTls
from broker.world import Address
from tests.sim.world import SimWorld

THERE = Address("mill-2.example.org", 29093)


class Scene:
    """The record of a broker, its time, and what it has logged."""

    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        self.world = SimWorld(1)
        self.refusals = LinkRefusals(
            self.world.clock, Warnings(self.world.clock), "secrets/tls.pem"
        )
        self._caplog = caplog

    def wait(self, delay_ms: int) -> None:
        self.world.run_for(delay_ms)

    @property
    def logged(self) -> list[str]:
        fields: list[Any] = [vars(one)["mill_fields"] for one in self._caplog.records]
        return [str(one["reason"]) for one in fields]

    @property
    def problems(self) -> list[str]:
        return [f"{one.code}: {one.text}" for one in self.refusals.problems()]


@pytest.fixture
def scene(caplog: pytest.LogCaptureFixture) -> Scene:
    return Scene(caplog)


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (
            CertificateRefused("certificate has expired"),
            "shows a certificate that has ended: run `./millrace cert renew` for this broker, or "
            "correct the clock of a host",
        ),
        (
            CertificateRefused("certificate is not yet valid"),
            "shows a certificate that is not valid yet: compare the clocks of both hosts",
        ),
        (
            CertificateRefused("unable to get local issuer certificate"),
            "shows a certificate that another CA has signed: all brokers need certificates of the "
            "same mill's CA",
        ),
        (
            CertificateRefused("self-signed certificate"),
            "shows a certificate that another CA has signed: all brokers need certificates of the "
            "same mill's CA",
        ),
        (
            CertificateRefused("unsuitable certificate purpose"),
            "shows a certificate that is not for servers and clients (extended key usage): run "
            "`./millrace cert renew` for this broker",
        ),
        (
            CertificateRefused("is of broker 3, expected broker 2", is_wrong_broker=True),
            "shows a certificate that is of broker 3, expected broker 2: run "
            "`./millrace cert renew` for this broker",
        ),
        (
            CertificateRefused("certificate revoked"),
            "shows a certificate that is refused (certificate revoked): run "
            "`./millrace cert renew` for this broker",
        ),
        (
            RefusedByPeer("sslv3 alert certificate expired"),
            "refuses the certificate of this broker, secrets/tls.pem: sslv3 alert certificate "
            "expired. If it has ended, run `./millrace cert renew`; the certificates of all "
            "brokers must be of one CA",
        ),
        (
            WithoutTls("the other side does not speak TLS"),
            "does not use TLS on its listener BROKER: give all brokers of the cluster the same "
            "settings",
        ),
    ],
)
def test_the_dialling_side_names_the_broker_and_the_remedy(
    scene: Scene, error: TlsError, said: str
) -> None:
    scene.refusals.dialled(2, THERE, error)
    assert scene.logged == [f"broker 2 at {THERE} {said}"]
    assert scene.problems == [f"link_refused: broker 2 at {THERE} {said}"]


@pytest.mark.parametrize(
    ("error", "said", "is_problem"),
    [
        (CertificateRefused("certificate has expired"), "shows a certificate that has ended", True),
        (
            CertificateRefused("names no broker", is_wrong_broker=True),
            "shows a certificate that names no broker",
            True,
        ),
        (TlsError("peer did not return a certificate"), "shows no certificate, which is", False),
        (WithoutTls("plain"), "connects to the listener BROKER without TLS", False),
        (RefusedByPeer("tlsv1 alert unknown ca"), "refuses the certificate of this broker", False),
        (TlsError("no shared cipher"), "fails in the TLS handshake: no shared cipher", False),
    ],
)
def test_the_accepting_side_names_the_address(
    scene: Scene, error: TlsError, said: str, is_problem: bool
) -> None:
    """A program that only connects to the port must not give the broker a problem."""
    scene.refusals.accepted("192.0.2.7", error)
    (logged,) = scene.logged
    assert logged.startswith(f"a peer at 192.0.2.7 {said}")
    assert scene.problems == ([f"link_refused: {logged}"] if is_problem else [])


def test_a_repeated_refusal_is_one_line_a_minute(scene: Scene) -> None:
    error = CertificateRefused("certificate has expired")
    for _ in range(150):
        scene.refusals.dialled(2, THERE, error)
        scene.wait(400)
    # The last of these came just before the end of the first minute.
    assert len(scene.logged) == 1
    scene.refusals.dialled(2, THERE, error)
    assert len(scene.logged) == 2
    assert len(scene.problems) == 1


def test_another_reason_is_logged_at_once(scene: Scene) -> None:
    scene.refusals.dialled(2, THERE, CertificateRefused("certificate has expired"))
    scene.refusals.dialled(2, THERE, WithoutTls("plain"))
    scene.refusals.dialled(3, THERE, WithoutTls("plain"))
    assert len(scene.logged) == 3
    assert [one[:22] for one in scene.problems] == [
        "link_refused: broker 2",
        "link_refused: broker 3",
    ]


def test_a_link_that_works_ends_the_problem(scene: Scene) -> None:
    for node_id in (2, 3):
        scene.refusals.dialled(node_id, THERE, CertificateRefused("certificate has expired"))
    scene.refusals.works(2, THERE)
    assert [one[:22] for one in scene.problems] == ["link_refused: broker 3"]
    # The connection worked in between, so the next refusal is logged at once.
    scene.refusals.dialled(2, THERE, CertificateRefused("certificate has expired"))
    assert len(scene.logged) == 3


def test_a_broker_that_links_to_this_one_ends_the_problem_too(scene: Scene) -> None:
    error = CertificateRefused("certificate has expired")
    scene.refusals.dialled(3, THERE, error)
    scene.refusals.accepted("192.0.2.3", error)
    scene.refusals.accepted("192.0.2.7", error)
    scene.refusals.linked(3, "192.0.2.3")
    assert [one[:33] for one in scene.problems] == ["link_refused: a peer at 192.0.2.7"]
    # It is still one log line a minute.
    scene.refusals.accepted("192.0.2.3", error)
    assert len(scene.problems) == 2
    assert len(scene.logged) == 3


def test_a_refusal_that_does_not_repeat_is_forgotten(scene: Scene) -> None:
    scene.refusals.accepted("192.0.2.7", CertificateRefused("certificate has expired"))
    scene.wait(SHOWN_MS - 1)
    assert len(scene.problems) == 1
    scene.wait(1)
    assert scene.problems == []


def test_handshakes_that_end_without_a_reason(scene: Scene) -> None:
    """A single handshake can end because the broker was killed. A broker without TLS ends every
    handshake."""
    for _ in range(ENDS_MIN - 1):
        scene.refusals.dialled_without_end(2, THERE)
        assert scene.problems == []
    scene.refusals.dialled_without_end(2, THERE)
    (text,) = scene.problems
    assert "closes the connection during the TLS handshake" in text
    assert "a broker whose links have no TLS closes it too" in text
    scene.refusals.works(2, THERE)
    scene.refusals.dialled_without_end(2, THERE)
    assert scene.problems == []


def test_a_slow_handshake_is_no_problem_of_certificates(scene: Scene) -> None:
    """For example, a stopped process accepts connections and does not answer."""
    scene.refusals.dialled(2, THERE, TlsError("the handshake was not complete after 10 s"))
    assert scene.logged == [
        f"broker 2 at {THERE} fails in the TLS handshake: the handshake was not complete after 10 s"
    ]
    assert scene.problems == []


def test_a_host_name_that_cannot_be_resolved(scene: Scene) -> None:
    scene.refusals.unresolved(2, THERE)
    assert scene.problems == [
        "link_unresolved: the host name mill-2.example.org of broker 2 cannot be resolved on this "
        "host: check the name, and the name server or /etc/hosts"
    ]
    # The other broker can link to this one although its name is not known here.
    scene.refusals.linked(2, "192.0.2.2")
    assert len(scene.problems) == 1
    scene.refusals.resolved(2, THERE)
    assert scene.problems == []


def test_a_resolved_name_says_nothing_about_the_certificate(scene: Scene) -> None:
    scene.refusals.dialled(2, THERE, CertificateRefused("certificate has expired"))
    scene.refusals.resolved(2, THERE)
    assert len(scene.problems) == 1


def test_so_many_addresses_are_remembered(scene: Scene) -> None:
    for number in range(SUBJECTS_MAX + 10):
        scene.refusals.accepted(f"host-{number}", CertificateRefused("certificate has expired"))
    assert len(scene.refusals._found) == SUBJECTS_MAX
    # The newest are shown.
    assert len(scene.problems) == SHOWN_MAX
    assert f"host-{SUBJECTS_MAX + 9} " in scene.problems[-1]
    # The log has a limit too, for all addresses together.
    assert len(scene.logged) == REASONS_MAX
