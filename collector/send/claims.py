"""The claim: a record by which a collector process takes over an instance.

Room: beside `checkpoints`. Pure. A process commits a claim first, in every partition of the topic
of positions, and reads positions up to its own claim, because its predecessor cannot commit
anything behind it. A later claim by another process tells a fenced collector that it has a rival;
without one, its own transaction had only timed out. Key: `<instance>//claim`, never the key of a
position.
"""

import json
from typing import NamedTuple

_FORMAT = 1


class Claim(NamedTuple):
    """One takeover. `owner` names exactly one process, which numbers its claims."""

    owner: str
    number: int


def claim_key(instance: str) -> bytes:
    """Return the record key of an instance's claims."""
    return f"{instance}//claim".encode()


def encode_claim(claim: Claim, host: str, now_ms: int) -> bytes:
    """Return the record value."""
    value = {
        "v": _FORMAT,
        "owner": claim.owner,
        "number": claim.number,
        "host": host,
        "at_ms": now_ms,
    }
    return json.dumps(value, separators=(",", ":")).encode()


def decode_claim(value: bytes) -> Claim | None:
    """Return the claim; None if the record cannot be read."""
    try:
        fields = json.loads(value)
        return Claim(str(fields["owner"]), int(fields["number"]))
    except (ValueError, KeyError, TypeError):
        return None
