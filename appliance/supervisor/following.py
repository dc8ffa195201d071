"""The configuration of a running mill: the edited file, and the copy that its parts start with.

A change that running parts can apply goes into the copy, which these parts watch. Any other change,
and a file with faults, leaves the copy unchanged and is reported.
"""

import hashlib
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from appliance.config.faults import ConfigFaults
from appliance.config.load import digest_of, load, load_bytes
from appliance.config.model import MillConfig
from appliance.errors import Failure
from appliance.machine.files import write_atomically
from appliance.mill.certificates import make_needed
from appliance.mill.home import Home
from appliance.mill.host_secrets import initialise_mill
from appliance.mill.init import renew_readers
from appliance.mill.parts import Part
from appliance.mill.settings import Mill
from appliance.supervisor.changes import differences
from collector.config.reloading import later_keys as later_collector_keys
from protocol.log import fields
from protocol.settling import Settling, Signature, signature_of
from stream.config.changes import LIVE_KEYS, changed_section, later_keys

FOLLOWED = frozenset({"stream", "collector", "topics"})
"""The sections that running parts follow, in part or whole. The collector and the stream need the
topics only to create missing ones."""

REMOVAL_TOLD_S = 3_600
"""The seconds for which `status` reports that a saved file has removed metrics."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Takeover:
    """The parts of a new configuration, and which of them must restart."""

    parts: tuple[Part, ...]
    changed: frozenset[str]


@dataclass(frozen=True, slots=True)
class RemovedMetrics:
    """Metrics that a saved file removed: the former metrics, and the time until which the removal
    is reported."""

    before: frozenset[str]
    text: str
    until_s: float


class CheckedFileChanged(Failure):
    """Raised when the file was saved again after the checks, or when another file was checked."""


class ConfigFollower:
    """Follows the edited configuration file.

    `digest` is the digest of the configuration in effect. `problem` says why the file is not in
    effect; None if it is.
    """

    def __init__(
        self, home: Home, digest: str, clock_s: Callable[[], float] = time.monotonic
    ) -> None:
        self.digest = digest
        self.problem: str | None = None
        self._clock_s = clock_s
        self._removal: RemovedMetrics | None = None
        self._home = home
        self._settling = Settling(known_signature(home))

    def must_be_read(self, now_s: float) -> bool:
        """Return whether the file has changed and is complete, because it has not been written for
        a moment."""
        return self._settling.look(signature_of(self._home.edited_config), now_s)

    @property
    def notice(self) -> str | None:
        """A sentence on the metrics that were removed within the last hour; None if there are none.

        It says how to restore the metrics.
        """
        removal = self._removal
        return removal.text if removal and self._clock_s() < removal.until_s else None

    def read(self) -> None:
        """Apply the file, or set `problem` to the reason why it cannot be applied.

        Blocks on the disk.
        """
        file, copy = self._home.edited_config, self._home.started_config
        try:
            data = file.read_bytes()
            wanted = load_bytes(data, file, self._home.folder).config
            started = load(copy, self._home.folder).config
            keys = keys_for_a_restart(started, wanted)
            if not keys and copy.read_bytes() != data:
                self._note_removal(started, wanted, copy.read_bytes())
                write_atomically(copy, data)
        except ConfigFaults as error:
            first, others = error.faults[0], len(error.faults) - 1
            more = f" (and {others} more: `./millrace config check`)" if others else ""
            self._say(f"{first}{more}; the mill continues with the previous configuration")
            return
        except OSError as error:
            self._say(f"{file} cannot be applied: {error}")
            return
        if keys:
            self._say(f"{', '.join(keys)} changed in {file}: `./millrace up --apply` applies it")
            return
        self.digest, self.problem = digest_of(data), None
        logger.info("the configuration has changed", extra=fields(digest=self.digest))

    def take_over(self, sha256: str | None) -> Takeover:
        """Apply the file, whatever parts must restart for it. This call blocks on the disk.

        `sha256` is the hash of the checked file in hexadecimal. A file with another hash is not
        applied. Raises ConfigFaults, Failure and OSError. After an error nothing has changed for
        the running parts.
        """
        file, copy = self._home.edited_config, self._home.started_config
        data = file.read_bytes()
        if sha256 != hashlib.sha256(data).hexdigest():
            raise CheckedFileChanged(
                f"{file}, which the mill uses, differs from the file that was checked, for "
                "example because it was saved in the meantime: run the command again"
            )
        found = load_bytes(data, file, self._home.folder).config
        wanted = Mill.of(self._home, found)
        started = Mill.of(self._home, load(copy, self._home.folder).config)
        initialise_mill(self._home, found, wanted.placement)
        make_needed(self._home, wanted.config, datetime.now(UTC))
        renew_readers(self._home, wanted.config.network.open)
        what = differences(started, wanted)
        write_atomically(copy, data)
        self.digest, self.problem = digest_of(data), None
        logger.info(
            "applied the changed configuration", extra=fields(digest=self.digest, what=what)
        )
        return Takeover(wanted.parts, frozenset(what.changed))

    def _note_removal(self, started: MillConfig, wanted: MillConfig, data: bytes) -> None:
        """Report metrics that a saved file removed.

        A file that was saved incompletely looks like a file from which the user has removed
        metrics. So the former configuration is kept until an hour has passed without a further
        removal.
        """
        known = self._removal if self.notice is not None else None
        names = {metric.name for metric in started.stream.metrics}
        kept = {metric.name for metric in wanted.stream.metrics}
        before = known.before if known is not None else frozenset(names)
        gone = sorted(before - kept)
        if not gone:
            self._removal = None
            return
        if known is None:
            write_atomically(self._home.config_before, data)
        elif names == kept:
            return
        moment = datetime.now(UTC)
        file = self._home.edited_config
        text = (
            f"{file.name}, saved at {moment:%H:%M:%S} UTC, removes {len(gone)} of {len(before)}"
            f" metrics: {', '.join(gone)}. They are no longer counted; their counts are kept."
            f" `cp {self._home.config_before} {file}` restores the metrics"
        )
        self._removal = RemovedMetrics(before, text, self._clock_s() + REMOVAL_TOLD_S)
        logger.warning(
            "a saved file has removed metrics from the configuration",
            extra=fields(metrics=", ".join(gone)),
        )

    def _say(self, problem: str) -> None:
        self.problem = problem
        logger.warning(
            "the changed configuration is not applied; the mill continues with the former one",
            extra=fields(why=problem),
        )


def known_signature(home: Home) -> Signature | None:
    """Return the signature of the edited file if the copy still has the same content."""
    signature = signature_of(home.edited_config)
    try:
        is_copied = home.edited_config.read_bytes() == home.started_config.read_bytes()
    except OSError:
        return signature
    return signature if is_copied else None


def keys_for_a_restart(started: MillConfig, wanted: MillConfig) -> list[str]:
    """Return the keys that differ and that no running part can apply."""
    keys = [
        key
        for key in MillConfig.model_fields
        if key not in FOLLOWED and getattr(started, key) != getattr(wanted, key)
    ]
    keys += later_collector_keys(started.collector, wanted.collector)
    keys += later_keys(started.stream, wanted.stream)
    if bool(started.stream.metrics) != bool(wanted.stream.metrics):
        # The stream runs only if there are metrics.
        keys.append("stream.metrics")
    live = changed_section(started.stream, wanted.stream)
    assert keys or live == wanted.stream, f"{LIVE_KEYS} are all that differs"
    return keys
