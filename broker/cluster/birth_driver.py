"""Runs the birth of a cluster for one broker: sends questions and reports, and stores the voter
set.

The rules are in `birth`. The core decides for how long questions are repeated. If brokers do not
answer, a warning names them every ten seconds. A broker that has its voter set still answers
questions, because other brokers can still need the answers.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from itertools import count

from broker.alarm import Alarm
from broker.cluster import birth
from broker.cluster.birth import Birth
from broker.cluster.found import DiskReport, listed
from broker.cluster.reports import report_from, request_by, response_of
from broker.quorum.voters import ReplicaKey
from broker.sessions.call import Call
from broker.sessions.peers import LinkKind, Peers
from broker.world import End, Jobs, World
from protocol.errors import ApiError, ErrorCode
from protocol.log import fields
from protocol.messages.replica_report import ReplicaReportRequest, ReplicaReportResponse

logger = logging.getLogger(__name__)

ANSWER_MS_MAX = 1_000
"""The time in milliseconds after which a question without an answer fails."""

WARNING_INTERVAL_MS = 10_000
"""The interval in milliseconds of the warning that names the brokers that have not answered."""

Voters = tuple[ReplicaKey, ...]


class BirthDriver:
    """Runs the birth for one process. Calls either `born(voters)` or `refused(reason)` once."""

    def __init__(
        self,
        found: DiskReport,
        peers: Peers,
        world: World,
        jobs: Jobs,
        keep: Callable[[Voters], None],
        born: Callable[[Voters], None],
        refused: Callable[[str], None],
    ) -> None:
        """`keep` makes a voter set durable. It runs in `jobs`."""
        self._birth = Birth(found)
        self._report = found.report
        self._peers = peers
        self._world = world
        self._jobs = jobs
        self._keep = keep
        self._born = born
        self._refused = refused
        self._alarm = Alarm(world, self._on_time)
        self._call_ids = count()
        self._calls: dict[int, Call] = {}
        self._warning_ms = 0

    @property
    def waits_for(self) -> list[int]:
        """The ids of the brokers whose answers are missing."""
        return self._birth.waits_for

    def start(self) -> None:
        """Start the birth. A broker that is configured alone can call `born` before this method
        returns."""
        self._warning_ms = self._world.clock.monotonic_ms() + WARNING_INTERVAL_MS
        self._step(birth.StartBirth())

    def stop(self) -> None:
        """Ask no more brokers for their reports."""
        self._alarm.stop()

    def asked(self, call: Call, request: ReplicaReportRequest) -> None:
        """Answer another broker's ReplicaReport request with this broker's report."""
        if request.topics is not None:
            raise ApiError(
                ErrorCode.UNSUPPORTED_VERSION,
                (
                    "found topics in the request, expected null: this broker reports all its "
                    "partitions together"
                ),
            )
        call_id = next(self._call_ids)
        self._calls[call_id] = call
        self._step(birth.ReportRequested(call_id, request.broker_id))

    def _step(self, event: birth.Event) -> None:
        now_ms = self._world.clock.monotonic_ms()
        for effect in self._birth.step(event, now_ms):
            self._perform(effect)
        if (deadline_ms := self._birth.next_deadline_ms) is not None:
            self._alarm.wake_by(deadline_ms)

    def _perform(self, effect: birth.Effect) -> None:
        match effect:
            case birth.RequestReport(question_id, node_id):
                self._ask(question_id, node_id)
            case birth.SendReport(call_id, report):
                self._calls.pop(call_id).answer(response_of(report))
            case birth.RejectQuestion(call_id):
                self._calls.pop(call_id).answer(
                    ReplicaReportResponse(
                        error_code=ErrorCode.BROKER_NOT_AVAILABLE,
                        error_message="this broker is storing the voter set; ask again",
                    )
                )
            case birth.StoreVoters(voters):
                self._jobs.run(
                    partial(self._keep, voters),
                    lambda nothing: self._step(birth.VotersStored()),
                    lambda error: self._refused(str(error)),
                )
            case birth.BirthDone(voters):
                self._born(voters)
            case birth.RefuseStart(text):
                self._refused(text)

    def _ask(self, question_id: int, node_id: int) -> None:
        def answered(response: ReplicaReportResponse) -> None:
            if response.error_code == ErrorCode.NONE:
                self._step(birth.ReportReceived(question_id, report_from(response)))
            else:
                self._step(birth.ReportFailed(question_id))

        def failed(end: End) -> None:
            self._step(birth.ReportFailed(question_id))

        self._peers.ask(
            node_id,
            LinkKind.QUICK,
            request_by(self._report),
            self._world.clock.monotonic_ms() + ANSWER_MS_MAX,
            answered,
            failed,
        )

    def _on_time(self, now_ms: int) -> int | None:
        waits_for = self._birth.waits_for
        if waits_for and now_ms >= self._warning_ms:
            self._warning_ms = now_ms + WARNING_INTERVAL_MS
            logger.warning(
                "a new cluster begins when all of its brokers are up",
                extra=fields(waits_for=listed(waits_for)),
            )
        self._step(birth.BirthTick())
        return self._birth.next_deadline_ms
