"""The claim: a record by which a collector process takes over an instance.

This module is pure. First a process commits a claim to every partition of the positions topic. Then
it reads the positions up to its own claim, because its predecessor cannot commit anything after the
claim. When a collector is fenced, a later claim of another process shows that there is a rival.
Without such a claim, only the collector's own transaction had timed out. The record key is
`<instance>//claim`, which is never the key of a position.
"""

import json
from typing import NamedTuple

_FORMAT = 1


class Claim(NamedTuple):
    """One takeover of an instance. `owner` names one process, and `number` counts its claims."""

    owner: str
    number: int


def claim_key(instance: str) -> bytes:
    """Return the record key of the claims of an instance."""
    return f"{instance}//claim".encode()


def encode_claim(claim: Claim, host: str, now_ms: int) -> bytes:
    """Return the record value of a claim."""
    value = {
        "v": _FORMAT,
        "owner": claim.owner,
        "number": claim.number,
        "host": host,
        "at_ms": now_ms,
    }
    return json.dumps(value, separators=(",", ":")).encode()


def decode_claim(value: bytes) -> Claim | None:
    """Return the claim in a record value; None if the value cannot be read."""
    try:
        fields = json.loads(value)
        return Claim(str(fields["owner"]), int(fields["number"]))
    except (ValueError, KeyError, TypeError):
        return None
