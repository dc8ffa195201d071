"""The connections between brokers that TLS has refused, as the log and `/status` name them.

This module decides and words; it opens nothing. A refusal that repeats is one log line a minute. A
refusal is a problem of the broker until the connection works, or until it has not repeated for
`SHOWN_MS`. A peer that only knocks at the port, without TLS or without a certificate, is logged but
is no problem of the broker.
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
"""The time in milliseconds after the last refusal for which the refusal is shown. A broker dials
again within half a second."""

TEXTS_MAX = 4
"""The largest number of reasons of one subject that are logged independently."""

KINDS = {
    "to": "the connection to another broker failed",
    "from": "a connection to the listener for brokers was refused",
}

SHOWN_MAX = 16
"""The largest number of refusals that are shown at a time: the newest."""

SUBJECTS_MAX = 256
"""The largest number of brokers and addresses whose refusals are remembered. Beyond it, the oldest
is forgotten."""

ENDS_MIN = 3
"""The number of handshakes in a row that a broker must end without a reason before this is a
problem. One handshake can end because the broker is being stopped."""

PROBLEM = "link_refused"
NAME_PROBLEM = "link_unresolved"

Subject = tuple[str, object]
"""The dialled broker, or the address of a peer that has dialled."""

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
        """Note that a connection to a broker failed."""
        where = _dialled(node_id, address)
        # A broker that is stopped or overloaded can let a handshake run out of time, so only these
        # errors are problems.
        kinds = (CertificateRefused, RefusedByPeer, WithoutTls)
        code = PROBLEM if isinstance(error, kinds) else ""
        self._note(_subject(node_id, address), f"{where} {self._of_dialled(error)}", code)

    def dialled_without_end(self, node_id: int | None, address: Address) -> None:
        """Note that a broker has closed the connection during the handshake, without a reason."""
        subject = _subject(node_id, address)
        refusal = self._refusal(subject)
        refusal.ends += 1
        text = (
            f"{_dialled(node_id, address)} closes the connection during the TLS handshake. Its log "
            "can say why; a broker whose links have no TLS closes it too"
        )
        self._note(subject, text, PROBLEM if refusal.ends >= ENDS_MIN else "")

    def unresolved(self, node_id: int | None, address: Address) -> None:
        """Note that the host name of a broker cannot be resolved."""
        text = (
            f"the host name {address.host} of {_named(node_id)} cannot be resolved on this host: "
            "check the name, and the name server or /etc/hosts"
        )
        self._note(_subject(node_id, address), text, NAME_PROBLEM)

    def works(self, node_id: int | None, address: Address) -> None:
        """Note that a dialled broker has answered."""
        self._found.pop(_subject(node_id, address), None)

    def linked(self, node_id: int | None, host: str) -> None:
        """Note that a broker has linked to this one, so its certificate is good now."""
        for subject in (("to", node_id), ("from", host)):
            refusal = self._found.get(subject)
            if refusal is not None:
                refusal.code = ""

    def accepted(self, host: str, error: TlsError) -> None:
        """Note that a connection from this address was refused."""
        # A program that shows no certificate at all is possibly no broker.
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
            # The kinds have limits of their own, so that strangers cannot silence the lines about
            # dialled brokers.
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
