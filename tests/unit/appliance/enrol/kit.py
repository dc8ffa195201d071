"""A join file for the tests."""

from __future__ import annotations

from typing import Any

from appliance.enrol.join_file import JoinFile
from protocol.security.scram import Mechanism

CANARY = "canary-of-a-secret"
ENDS_MS = 1_800_000_000_000


def join_file(**changes: Any) -> JoinFile:
    fields: dict[str, Any] = {
        "cluster_id": "AAAAAAAAQACAAAAAAAAAAQ",
        "name": "web-07",
        "group": "web",
        "addresses": ("mill.example.org:9192", "mill.example.org:9193"),
        "ca": "-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----\n",
        "user": "collector.web-07",
        "mechanism": Mechanism.SHA_512,
        "secret": CANARY,
        "ends_ms": ENDS_MS,
        "topic": "logs.access",
        "commit_interval_ms": 25,
    }
    return JoinFile(**{**fields, **changes})
