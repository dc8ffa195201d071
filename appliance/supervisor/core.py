"""The supervisor's core decides what to start, probe, restart and stop, and when.

This module is pure: the time is the argument `now_ms`, randomness comes from a `random.Random`, and
the outputs are effects that the driver performs in order. A part moves through these states:

    WAITING ─▶ STARTING ─▶ HEALTHY ◀─▶ UNHEALTHY
       ▲          │           │            │        any live state ─▶ STOPPING ─▶ STOPPED
       │          ▼           ▼            ▼        exit code 75 or 2 ─▶ FAILED
       └────────── BACKING_OFF ◀───────────┘

A part waits until every part of a lower start rank has been healthy once. If a part of a lower rank
ends later, the part keeps running, because each part can wait for the others. A part that answers
"not ready" is not restarted, however long this lasts. A part that gives no answer at all for
`HANG_MS` is killed and started again.

Parts that take turns (the brokers of a cluster) are asked to stop one at a time. The next one stops
when the previous one has ended. If `replace` restarts them, all brokers must also be healthy and
all replicas in sync (`turns`). When the whole mill stops, no broker waits for replicas, because the
parts that produce records have ended before, and the replicas of stopped brokers cannot get in
sync.
"""

import random
from collections.abc import Collection, Iterable

from appliance.mill.parts import Part
from appliance.supervisor import one_part
from appliance.supervisor.effects import (
    LIVE,
    AllStopped,
    Effect,
    Note,
    PartPhase,
    ProbePart,
    ProbeResult,
    Readiness,
)
from appliance.supervisor.one_part import PROBE_STARTING_MS
from appliance.supervisor.part_state import PartEntry
from appliance.supervisor.turns import IN_SYNC_MS, RestartTurns
from protocol.status import EXIT_FENCED

PROBE_HEALTHY_MS = 2_000

EXIT_SETTINGS = 2


class Supervisor:
    """The state of all parts. Every method returns the effects that the driver must perform now."""

    def __init__(self, parts: Iterable[Part], chance: random.Random) -> None:
        self.parts = {part.name: PartEntry(part) for part in parts}
        self.is_stopping = False
        self.turns = RestartTurns()
        self._chance = chance
        self._is_over = False

    @property
    def next_deadline_ms(self) -> int | None:
        """The time at which the caller must call `tick` at the latest; None if nothing changes
        without another call."""
        moments: list[int | None] = [self.turns.next_deadline_ms]
        for entry in self.parts.values():
            moments += [entry.act_at_ms, None if entry.is_asked else entry.probe_at_ms]
        return min((one for one in moments if one is not None), default=None)

    @property
    def is_healthy(self) -> bool:
        """True if every part is healthy."""
        return all(entry.state is PartPhase.HEALTHY for entry in self.parts.values())

    def tick(self, now_ms: int) -> list[Effect]:
        """Return the effects that are due."""
        effects: list[Effect] = []
        for entry in list(self.parts.values()):
            self._tick_part(entry, now_ms, effects)
        if self.is_stopping:
            self._stop_lowest(list(self.parts.values()), now_ms, effects)
            self._end_when_stopped(effects)
        else:
            self._stop_lowest(
                [e for e in self.parts.values() if e.is_changing and not e.awaits_its_turn],
                now_ms,
                effects,
            )
            self._take_turns(now_ms, effects)
        return effects

    def on_started(self, name: str, pid: int, now_ms: int) -> list[Effect]:
        """Handle the start of a part's process."""
        entry = self.parts[name]
        entry.pid = pid
        return [Note(name, f"started as process {pid}")]

    def on_exit(self, name: str, code: int, now_ms: int) -> list[Effect]:
        """Handle the end of a part's process, or a process that could not be started.

        A negative code is the number of the signal that ended the process.
        """
        entry = self.parts[name]
        effects: list[Effect] = []
        was = entry.state
        entry.pid = None
        entry.last_exit_code = code
        entry.probe_at_ms = entry.act_at_ms = entry.silent_since_ms = None
        ended = exit_text(code)
        if entry.is_changing and not self.is_stopping:
            why = "its turn to restart" if entry.awaits_its_turn else "another configuration"
            effects.append(Note(name, f"stopped for {why} ({ended})"))
            self._exchange(entry)
        elif was is PartPhase.STOPPING and not entry.starts_again:
            entry.state, entry.reason = PartPhase.STOPPED, ""
            effects.append(Note(name, f"stopped ({ended})"))
        elif was is PartPhase.STOPPING:
            entry.starts_again = False
            entry.state, entry.reason = PartPhase.WAITING, "being restarted"
            effects.append(Note(name, f"stopped for a restart ({ended})"))
        elif code in (EXIT_FENCED, EXIT_SETTINGS):
            entry.state = PartPhase.FAILED
            entry.reason = (
                "another process has taken over its work, so it is not started again"
                if code == EXIT_FENCED
                else "its settings are invalid; its log says which"
            )
            effects.append(Note(name, f"ended with code {code}: {entry.reason}", True))
        else:
            effects += one_part.back_off(entry, ended, was, self._chance, now_ms)
            if self.is_stopping:
                entry.state, entry.act_at_ms = PartPhase.STOPPED, None
        effects.extend(self.tick(now_ms))
        return effects

    def on_probe(self, name: str, answer: ProbeResult, reason: str, now_ms: int) -> list[Effect]:
        """Handle the result of a probe.

        A result that comes after the process has ended changes nothing.
        """
        entry = self.parts.get(name)
        if entry is None:
            return []
        entry.is_asked = False
        if entry.state not in (PartPhase.STARTING, PartPhase.HEALTHY, PartPhase.UNHEALTHY):
            return []
        effects: list[Effect] = []
        if answer is not ProbeResult.SILENT:
            entry.silent_since_ms = None
        if answer is ProbeResult.OK:
            effects += one_part.found_healthy(entry, now_ms)
        else:
            effects += one_part.found_unwell(entry, answer, reason, now_ms)
        if entry.state in (PartPhase.STARTING, PartPhase.HEALTHY, PartPhase.UNHEALTHY):
            wait = PROBE_STARTING_MS if entry.state is PartPhase.STARTING else PROBE_HEALTHY_MS
            entry.probe_at_ms = now_ms + wait
        effects.extend(self.tick(now_ms))
        return effects

    def on_copies(self, number: int, ready: Readiness, now_ms: int) -> list[Effect]:
        """Handle the answer to an `AskReplicas`."""
        if self.is_stopping:
            return []
        effects: list[Effect] = []
        was_over = self.turns.is_over
        if self.turns.found(number, ready, now_ms):
            effects += one_part.begin_stop(self._awaiting_turns(ready.controller)[0], now_ms)
        elif self.turns.is_over and not was_over:
            effects.append(Note(self._awaiting_turns()[0].part.name, self.round_ended, True))
        effects.extend(self.tick(now_ms))
        return effects

    @property
    def round_ended(self) -> str:
        """The reason why a round of restarts has ended before all parts were restarted; empty if
        all were restarted."""
        waiting = [entry.part.name for entry in self._awaiting_turns()]
        if not self.turns.is_over or not waiting:
            return ""
        return (
            f"not restarted: {', '.join(waiting)}. {IN_SYNC_MS // 1000} s were not enough for "
            f"{self.turns.waits_for}. `./millrace broker describe` shows the partitions; when all "
            "are in sync, continue with `./millrace up --apply`"
        )

    def reason_of(self, entry: PartEntry) -> str:
        """Return the reason for a part's state, or the reason why it still waits for its turn."""
        if entry.reason or not entry.awaits_its_turn or not self.turns.waits_for:
            return entry.reason
        if self.turns.is_over:
            return "not restarted, because the restart of the brokers before it did not succeed"
        return f"restarts in its turn; waits for {self.turns.waits_for}"

    def stop(self, now_ms: int) -> list[Effect]:
        """Stop all parts in order. The effect `AllStopped` comes at the end."""
        self.is_stopping = True
        for entry in self.parts.values():
            entry.starts_again = False
            if entry.state not in LIVE:
                entry.state, entry.act_at_ms, entry.reason = PartPhase.STOPPED, None, ""
        return self.tick(now_ms)

    def restart(self, name: str, now_ms: int) -> list[Effect]:
        """Stop one part and start it again at once. A failed or waiting part is only started."""
        entry = self.parts[name]
        if self.is_stopping:
            return []
        effects: list[Effect] = []
        entry.attempts = 0
        if entry.state in LIVE:
            entry.starts_again = True
            if entry.state is not PartPhase.STOPPING:
                effects += one_part.begin_stop(entry, now_ms)
        else:
            entry.state, entry.act_at_ms, entry.reason = PartPhase.WAITING, None, ""
        effects.extend(self.tick(now_ms))
        return effects

    def stop_part(self, name: str, now_ms: int) -> list[Effect]:
        """Stop one part, and leave it stopped until `restart` is called for it."""
        entry = self.parts[name]
        if self.is_stopping:
            return []
        effects: list[Effect] = []
        entry.starts_again = False
        if entry.awaits_its_turn:
            # A later start uses the configuration that is in effect then, so forget the waiting
            # replacement.
            entry.successor = None
        if entry.state not in LIVE:
            entry.state, entry.act_at_ms, entry.reason = PartPhase.STOPPED, None, ""
        elif entry.state is not PartPhase.STOPPING:
            effects += one_part.begin_stop(entry, now_ms)
        effects.extend(self.tick(now_ms))
        return effects

    def replace(self, parts: Iterable[Part], changed: Collection[str], now_ms: int) -> list[Effect]:
        """Replace all parts by `parts`.

        Changed parts restart, and parts that are no longer in the list are stopped and removed.
        Parts that must end are stopped in stop order. None of them starts again before all of them
        have ended. Parts that take turns and keep their address restart one after the other
        instead. Unchanged parts keep running.
        """
        if self.is_stopping:
            return []
        self.turns.begin()
        wanted = {part.name: part for part in parts}
        for name, entry in list(self.parts.items()):
            is_changed = name in changed or entry.is_changing
            entry.is_leaving = name not in wanted
            entry.successor = wanted[name] if is_changed and name in wanted else None
            if entry.is_changing and entry.state not in LIVE:
                self._exchange(entry)
        for name, part in wanted.items():
            if name not in self.parts:
                self.parts[name] = PartEntry(part)
        return self.tick(now_ms)

    def restart_in_turns(self, names: Collection[str], now_ms: int) -> list[Effect]:
        """Restart these parts one after the other, while the other parts of their kind do their
        work.

        Parts without a process, for example those that the user has stopped, start at once. If a
        round is running, or has ended before all its parts were restarted, that round continues
        with the parts that still wait, and no part is added.
        """
        if self.is_stopping:
            return []
        self.turns.begin()
        if not self._awaiting_turns():
            for entry in [self.parts[name] for name in names]:
                entry.successor = entry.part
                if entry.state not in LIVE:
                    self._exchange(entry)
        return self.tick(now_ms)

    def _exchange(self, entry: PartEntry) -> None:
        """Replace or remove a part that has no process."""
        if entry.is_leaving:
            del self.parts[entry.part.name]
        elif entry.successor is not None:
            self.parts[entry.part.name] = PartEntry(
                entry.successor,
                restarts=entry.restarts,
                last_exit_code=entry.last_exit_code,
                # Other brokers do the work of this part in the meantime, so no part waits for it.
                was_healthy=entry.was_healthy and entry.awaits_its_turn,
            )

    def _tick_part(self, entry: PartEntry, now_ms: int, effects: list[Effect]) -> None:
        due = entry.act_at_ms is not None and now_ms >= entry.act_at_ms
        name = entry.part.name
        if entry.state is PartPhase.BACKING_OFF and due:
            entry.state, entry.act_at_ms = PartPhase.WAITING, None
        if entry.state is PartPhase.WAITING:
            missing = self._missing_for(entry)
            if missing:
                entry.reason = f"waits for {', '.join(missing)}"
            else:
                effects += one_part.start(entry, now_ms)
        elif entry.state is PartPhase.STARTING and due:
            entry.act_at_ms = None
            effects.append(Note(name, f"not healthy in time: {entry.reason}", True))
            effects += one_part.kill(entry)
        elif entry.state is PartPhase.STOPPING and due:
            entry.act_at_ms = None
            effects.append(Note(name, "did not stop in time, so it is killed", True))
            effects += one_part.kill(entry)
        if (
            entry.state in (PartPhase.STARTING, PartPhase.HEALTHY, PartPhase.UNHEALTHY)
            and not entry.is_asked
            and entry.probe_at_ms is not None
            and now_ms >= entry.probe_at_ms
        ):
            entry.is_asked = True
            effects.append(ProbePart(name))

    def _missing_for(self, entry: PartEntry) -> list[str]:
        """Return the parts of lower start rank that were never healthy, and the parts that must end
        before this part starts."""
        return [
            other.part.name
            for other in self.parts.values()
            if (other.part.start_rank < entry.part.start_rank and not other.was_healthy)
            or (other.is_changing and not other.awaits_its_turn and not entry.was_healthy)
        ]

    def _stop_lowest(
        self, entries: Iterable[PartEntry], now_ms: int, effects: list[Effect]
    ) -> None:
        """Stop the parts of the lowest stop rank that still run.

        The next rank follows when they have ended.
        """
        running = [entry for entry in entries if entry.state in LIVE]
        rank = min((entry.part.stop_rank for entry in running), default=0)
        for entry in running:
            if entry.part.stop_rank != rank or entry.state is PartPhase.STOPPING:
                continue
            if not (entry.part.takes_turns and self._is_a_turn_taken()):
                effects += one_part.begin_stop(entry, now_ms)

    def _awaiting_turns(self, controller: str | None = None) -> list[PartEntry]:
        """Return the parts that wait to restart while other parts do their work.

        Parts that are not healthy come first, because their new settings can repair them. The
        active controller comes last, so that the controller changes only once.
        """
        waiting = [entry for entry in self.parts.values() if entry.awaits_its_turn]
        return sorted(
            waiting,
            key=lambda one: (one.state is PartPhase.HEALTHY, one.part.name == controller),
        )

    def _take_turns(self, now_ms: int, effects: list[Effect]) -> None:
        """Restart the next part of the round if it may stop now.

        A part that is not healthy restarts at once. A healthy part waits until all parts of its
        kind are healthy and all replicas are in sync.
        """
        waiting = self._awaiting_turns()
        if not waiting:
            self.turns.begin()
        elif self.turns.is_over:
            return
        elif self._is_a_turn_taken():
            self.turns.hold("")
        elif waiting[0].state is not PartPhase.HEALTHY:
            self.turns.hold("")
            effects += one_part.begin_stop(waiting[0], now_ms)
        else:
            kind = [entry for entry in self.parts.values() if entry.part.takes_turns]
            absent = [entry.part.name for entry in kind if entry.state is not PartPhase.HEALTHY]
            if absent:
                self.turns.hold(", ".join(absent))
            else:
                effects += self.turns.look(tuple(entry.part.name for entry in kind), now_ms)

    def _is_a_turn_taken(self) -> bool:
        """Return whether a part that takes turns is being stopped."""
        return any(
            entry.part.takes_turns and entry.state is PartPhase.STOPPING
            for entry in self.parts.values()
        )

    def _end_when_stopped(self, effects: list[Effect]) -> None:
        if any(entry.state in LIVE for entry in self.parts.values()):
            return
        for entry in self.parts.values():
            entry.state, entry.act_at_ms = PartPhase.STOPPED, None
        if not self._is_over:
            self._is_over = True
            effects.append(AllStopped())


def exit_text(code: int) -> str:
    """Return an exit code in words."""
    return f"signal {-code}" if code < 0 else f"exit code {code}"
