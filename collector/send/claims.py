"""The claim: a record by which a collector process takes an instance over.

Floor: beside `checkpoints`. Pure. It is the first thing a process commits, in every partition of
the topic of positions, and it reads positions up to its own claim: nothing the predecessor
committed can lie behind it. The claim before it tells whether a fenced collector met a rival or
had only slept through its transaction's time. Key: `<instance>//claim`, no key of a position.
"""

import json
from typing import NamedTuple

_FORMAT = 1


class Claim(NamedTuple):
    """One taking over: `owner` is a name that only one process has, which counts its claims."""

    owner: str
    number: int


def claim_key(instance: str) -> bytes:
    """The record key of an instance's claims."""
    return f"{instance}//claim".encode()


def encode_claim(claim: Claim, host: str, now_ms: int) -> bytes:
    """The record value."""
    value = {
        "v": _FORMAT,
        "owner": claim.owner,
        "number": claim.number,
        "host": host,
        "at_ms": now_ms,
    }
    return json.dumps(value, separators=(",", ":")).encode()


def decode_claim(value: bytes) -> Claim | None:
    """The claim; None where the record cannot be read."""
    try:
        fields = json.loads(value)
        return Claim(str(fields["owner"]), int(fields["number"]))
    except (ValueError, KeyError, TypeError):
        return None
