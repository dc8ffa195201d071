"""The status of a part: the schema of `/status`, and a client for it.

The module has only data classes, except for `fetch_status`, the small synchronous client of the
command line. `protocol/status_http.py` is the server. `details` differs from part to part. All
other fields are the same for all parts, so `millrace status`, the monitor and container health
checks need only one reader.
"""

import json
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import http.client

VERSION = "1.0.0-rc1"
SCHEMA = "status/1"
STATUS_BYTES_MAX = 8 * 1024 * 1024

EXIT_FENCED = 75
"""The exit code of a part that ended because another process has taken its place. A part that is
started again after it would end that process in turn, without end."""

_READ_BYTES = 64 * 1024


class PartState(StrEnum):
    """The state of a part.

    `degraded` means that the part works, but something that it needs does not.
    """

    STARTING = "starting"
    RUNNING = "running"
    DEGRADED = "degraded"
    STOPPING = "stopping"


@dataclass(frozen=True, slots=True)
class Problem:
    """One problem: a stable code for programs, and a sentence with the remedy for users."""

    code: str
    text: str


class StatusUnavailable(Exception):
    """The error when a part returned no usable status. Its text says why."""


@dataclass(frozen=True, slots=True)
class PartStatus:
    """The status of one part at `now_ms` (Unix milliseconds).

    `details` must be plain JSON values.
    """

    part: str
    state: PartState
    ready: bool
    started_at_ms: int
    now_ms: int
    problems: tuple[Problem, ...] = ()
    details: Mapping[str, object] = field(default_factory=dict)
    version: str = VERSION
    pid: int = field(default_factory=os.getpid)

    def to_json(self) -> dict[str, object]:
        """Return the object that is served under `/status`."""
        return {
            "schema": SCHEMA,
            "part": self.part,
            "state": str(self.state),
            "ready": self.ready,
            "version": self.version,
            "pid": self.pid,
            "started_at_ms": self.started_at_ms,
            "now_ms": self.now_ms,
            "problems": [{"code": p.code, "text": p.text} for p in self.problems],
            "details": dict(self.details),
        }

    def encode(self) -> bytes:
        """Return the status as JSON in UTF-8, with a final line end."""
        return json.dumps(self.to_json(), separators=(",", ":")).encode() + b"\n"

    def reason_not_ready(self) -> str:
        """Return a sentence for `/healthz`: the problems if any, else the state."""
        texts = [f"{problem.code}: {problem.text}" for problem in self.problems]
        return "; ".join(texts) if texts else f"{self.part} is {self.state}"

    def reason_degraded(self) -> str:
        """Return a sentence about what is wrong with a part that is ready but degraded."""
        return f"degraded: {self.reason_not_ready()}"

    @classmethod
    def decode(cls, body: bytes) -> "PartStatus":
        """Decode the JSON text of a status. Unknown keys of later versions are ignored.

        Raises StatusUnavailable if the text is not such an object.
        """
        try:
            value = json.loads(body)
            if value["schema"] != SCHEMA:
                raise StatusUnavailable(f"found schema {value['schema']!r}, expected {SCHEMA!r}")
            return cls(
                part=str(value["part"]),
                state=PartState(value["state"]),
                ready=value["ready"] is True,
                started_at_ms=int(value["started_at_ms"]),
                now_ms=int(value["now_ms"]),
                problems=tuple(Problem(str(p["code"]), str(p["text"])) for p in value["problems"]),
                details=dict(value["details"]),
                version=str(value["version"]),
                pid=int(value["pid"]),
            )
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise StatusUnavailable(f"found JSON that is not a part's status: {error!r}") from error


def fetch_status(
    host: str,
    port: int,
    timeout_s: float,
    connection: "http.client.HTTPConnection | None" = None,
) -> PartStatus:
    """Ask a part for its status. Wait at most `timeout_s` for the whole answer.

    `connection` is another way to the part than TCP.

    Raises StatusUnavailable if nothing listens at the address, if the answer is late or larger than
    STATUS_BYTES_MAX, or if it is not a status.
    """
    # A broker imports this module for PartStatus alone; http.client would cost it 3 MB.
    import http.client

    deadline = time.monotonic() + timeout_s
    connection = connection or http.client.HTTPConnection(host, port, timeout=timeout_s)
    try:
        connection.request("GET", "/status", headers={"Connection": "close"})
        response = connection.getresponse()
        if response.status != 200:
            raise StatusUnavailable(f"{host}:{port} answered {response.status} {response.reason}")
        body = bytearray()
        while chunk := response.read(_READ_BYTES):
            body += chunk
            if len(body) > STATUS_BYTES_MAX:
                raise StatusUnavailable(f"{host}:{port} sent more than {STATUS_BYTES_MAX} bytes")
            if time.monotonic() > deadline:
                raise TimeoutError
    except TimeoutError as error:
        raise StatusUnavailable(f"{host}:{port} gave no answer within {timeout_s} s") from error
    except (OSError, http.client.HTTPException) as error:
        raise StatusUnavailable(f"{host}:{port}: {error}") from error
    finally:
        connection.close()
    return PartStatus.decode(bytes(body))
