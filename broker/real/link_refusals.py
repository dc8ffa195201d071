"""Records the connections between brokers that failed because of TLS, for the log and `/status`.

This module decides what is reported and makes the texts; it opens no connection. The log has one
line a minute for a refusal that repeats. `/status` shows a refusal as a problem until the
connection works, or until the refusal has not repeated for `SHOWN_MS`. A peer that only connects to
the port, without TLS or without a certificate, is logged but is no problem of the broker.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field

from broker.metrics.warnings import Warnings
from broker.real.tls_engine import CertificateRefused, RefusedByPeer, TlsError, WithoutTls
from broker.world import Address, Clock
from protocol.status import Problem

logger = logging.getLogger(__name__)

LOGGED_EVERY_MS = 60_000

SHOWN_MS = 60_000
"""The time in milliseconds for which `/status` shows a refusal after its last repetition. A broker
dials again within half a second."""

TEXTS_MAX = 4
"""The largest number of texts of one subject whose last log line is remembered. Each of them is
logged once in LOGGED_EVERY_MS."""

KINDS = {
    "to": "the connection to another broker failed",
    "from": "a connection to the listener for brokers was refused",
}

SHOWN_MAX = 16
"""The largest number of refusals that `/status` shows. The newest are shown."""

SUBJECTS_MAX = 256
"""The largest number of brokers and addresses whose refusals are remembered. Above this number the
oldest is forgotten."""

ENDS_MIN = 3
"""The number of handshakes in a row that a broker must end without a reason before this is a
problem. One handshake can end because the broker is being stopped."""

PROBLEM = "link_refused"
NAME_PROBLEM = "link_unresolved"

Subject = tuple[str, object]
"""The subject of a refusal: the broker that this broker dialled, or the address of a peer that
dialled this broker."""

RENEW = "run `./millrace cert renew`"


@dataclass(slots=True)
class _Refusal:
    """The refusals of one subject."""

    text: str = ""
    code: str = ""
    """The code of the problem; empty if the refusal is only logged."""
    at_ms: int = 0
    logged_ms: dict[str, int] = field(default_factory=dict)
    """The time of the last log line, by its text. The newest texts are kept."""
    ends: int = 0
    """The number of handshakes in a row that ended without a reason."""


class LinkRefusals:
    """The refused connections of one broker."""

    def __init__(self, clock: Clock, warnings: Warnings, certificate: str = "") -> None:
        """`certificate` is the path of this broker's own certificate."""
        self._clock = clock
        self._warnings = warnings
        self._certificate = certificate
        self._found: dict[Subject, _Refusal] = {}

    def dialled(self, node_id: int | None, address: Address, error: TlsError) -> None:
        """Record that a connection to a broker failed."""
        where = _dialled(node_id, address)
        # A broker that is stopped or overloaded can let a handshake run out of time, so only these
        # errors are problems.
        kinds = (CertificateRefused, RefusedByPeer, WithoutTls)
        code = PROBLEM if isinstance(error, kinds) else ""
        self._note(_subject(node_id, address), f"{where} {self._of_dialled(error)}", code)

    def dialled_without_end(self, node_id: int | None, address: Address) -> None:
        """Record that a broker has closed the connection during the handshake, without a reason."""
        subject = _subject(node_id, address)
        refusal = self._refusal(subject)
        refusal.ends += 1
        text = (
            f"{_dialled(node_id, address)} closes the connection during the TLS handshake. Its log "
            "can say why; a broker whose links have no TLS closes it too"
        )
        self._note(subject, text, PROBLEM if refusal.ends >= ENDS_MIN else "")

    def unresolved(self, node_id: int | None, address: Address) -> None:
        """Record that the host name of a broker cannot be resolved."""
        text = (
            f"the host name {address.host} of {_named(node_id)} cannot be resolved on this host: "
            "check the name, and the name server or /etc/hosts"
        )
        self._note(_subject(node_id, address), text, NAME_PROBLEM)

    def resolved(self, node_id: int | None, address: Address) -> None:
        """Record that the host name of a broker was resolved."""
        self._settle(_subject(node_id, address), NAME_PROBLEM)

    def works(self, node_id: int | None, address: Address) -> None:
        """Record that a dialled broker has answered."""
        self._found.pop(_subject(node_id, address), None)

    def linked(self, node_id: int | None, host: str) -> None:
        """Record that a broker has connected to this broker, so its certificate is accepted now."""
        self._settle(("to", node_id), PROBLEM)
        self._settle(("from", host), PROBLEM)

    def accepted(self, host: str, error: TlsError) -> None:
        """Record that a connection from this address was refused."""
        # A program that shows no certificate at all may be no broker, so it is only logged.
        is_shown = isinstance(error, CertificateRefused)
        self._note(("from", host), f"a peer at {host} {_of_accepted(error)}", PROBLEM * is_shown)

    def problems(self) -> list[Problem]:
        """Return the refusals that are problems of the broker now."""
        now_ms = self._clock.monotonic_ms()
        shown = [one for one in self._found.values() if now_ms - one.at_ms < SHOWN_MS and one.code]
        return [Problem(one.code, one.text) for one in shown[-SHOWN_MAX:]]

    def _of_dialled(self, error: TlsError) -> str:
        match error:
            case CertificateRefused():
                return f"shows a certificate that {_fault(error)}"
            case RefusedByPeer():
                return (
                    f"refuses the certificate of this broker, {self._certificate}: {error.reason}. "
                    f"If it has ended, {RENEW}; the certificates of all brokers must be of one CA"
                )
            case WithoutTls():
                return (
                    "does not use TLS on its listener BROKER: give all brokers of the cluster the "
                    "same settings"
                )
        return f"fails in the TLS handshake: {error}"

    def _settle(self, subject: Subject, code: str) -> None:
        """End the problem of a subject, if it has this code. Its log lines stay limited."""
        refusal = self._found.get(subject)
        if refusal is not None and refusal.code == code:
            refusal.code = ""

    def _note(self, subject: Subject, text: str, code: str) -> None:
        now_ms = self._clock.monotonic_ms()
        refusal = self._refusal(subject)
        refusal.text, refusal.code, refusal.at_ms = text, code, now_ms
        logged_ms = refusal.logged_ms.get(text)
        if logged_ms is None or now_ms - logged_ms >= LOGGED_EVERY_MS:
            refusal.logged_ms.pop(text, None)
            refusal.logged_ms[text] = now_ms
            if len(refusal.logged_ms) > TEXTS_MAX:
                del refusal.logged_ms[next(iter(refusal.logged_ms))]
            # The two kinds of refusals have separate limits, so that strangers cannot suppress the
            # lines about dialled brokers.
            self._warnings.warn(logger, KINDS[subject[0]], reason=text)

    def _refusal(self, subject: Subject) -> _Refusal:
        refusal = self._found.pop(subject, None) or _Refusal()
        self._found[subject] = refusal
        if len(self._found) > SUBJECTS_MAX:
            del self._found[next(iter(self._found))]
        return refusal


def _subject(node_id: int | None, address: Address) -> Subject:
    return ("to", address if node_id is None else node_id)


def _named(node_id: int | None) -> str:
    return "a broker" if node_id is None else f"broker {node_id}"


def _dialled(node_id: int | None, address: Address) -> str:
    return f"{_named(node_id)} at {address}"


def _of_accepted(error: TlsError) -> str:
    match error:
        case CertificateRefused():
            return f"shows a certificate that {_fault(error)}"
        case RefusedByPeer():
            return f"refuses the certificate of this broker: {error.reason}"
        case WithoutTls():
            return (
                "connects to the listener BROKER without TLS, which is refused. If it is a broker, "
                "give all brokers of the cluster the same settings"
            )
    if "did not return a certificate" in str(error):
        return "shows no certificate, which is refused. Only brokers may use the listener BROKER"
    return f"fails in the TLS handshake: {error}"


def _fault(error: CertificateRefused) -> str:
    """Return what is wrong with a certificate, and what to do. The text continues "It shows a
    certificate that"."""
    reason = error.reason
    if error.is_wrong_broker:
        return f"{reason}: {RENEW} for this broker"
    if "expired" in reason:
        return f"has ended: {RENEW} for this broker, or correct the clock of a host"
    if "not yet valid" in reason:
        return "is not valid yet: compare the clocks of both hosts"
    if "issuer" in reason or "self-signed" in reason or "self signed" in reason:
        return "another CA has signed: all brokers need certificates of the same mill's CA"
    if "purpose" in reason:
        return f"is not for servers and clients (extended key usage): {RENEW} for this broker"
    return f"is refused ({reason}): {RENEW} for this broker"
