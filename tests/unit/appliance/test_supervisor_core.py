"""The decisions of the supervisor, first for single events and then in thousands of random
histories."""

import heapq
import os
import random
from dataclasses import dataclass, field

import pytest

from appliance.supervisor import core, one_part
from appliance.supervisor.core import Supervisor
from appliance.supervisor.effects import (
    LIVE,
    AllStopped,
    AskReplicas,
    Effect,
    Note,
    PartPhase,
    ProbePart,
    ProbeResult,
    Readiness,
    Start,
    Terminate,
)
from tests.unit.appliance.supervised import bring_up, deeds, part, state_of, supervisor


def test_a_part_starts_is_asked_and_is_healthy() -> None:
    mill = supervisor()
    assert mill.tick(0) == [Start("a")]
    assert mill.next_deadline_ms == one_part.PROBE_STARTING_MS
    assert deeds(mill.on_started("a", 7, 1)) == []
    assert mill.tick(one_part.PROBE_STARTING_MS) == [ProbePart("a")]
    # The supervisor sends no second probe while the first one has no result.
    assert mill.tick(one_part.PROBE_STARTING_MS + 50) == []
    mill.on_probe("a", ProbeResult.OK, "", 400)
    assert mill.is_healthy
    assert mill.next_deadline_ms == 400 + core.PROBE_HEALTHY_MS


def test_later_ranks_wait_for_earlier_ones() -> None:
    mill = supervisor(part("sink"), part("broker"), part("collector", start_rank=1))
    assert mill.tick(0) == [Start("sink"), Start("broker")]
    assert mill.parts["collector"].reason == "waits for sink, broker"
    mill.on_probe("sink", ProbeResult.OK, "", 10)
    assert state_of(mill, "collector") is PartPhase.WAITING
    assert Start("collector") in mill.on_probe("broker", ProbeResult.OK, "", 20)


def test_a_dead_dependency_does_not_stop_what_runs() -> None:
    mill = supervisor(part("broker"), part("collector", start_rank=1))
    bring_up(mill, "broker")
    mill.on_probe("collector", ProbeResult.OK, "", 1)
    mill.on_exit("broker", -9, 5)
    assert state_of(mill, "collector") is PartPhase.HEALTHY
    # A crashed dependent starts again as well, although its dependency is down.
    mill.on_exit("collector", 1, 6)
    assert Start("collector") in mill.tick(6 + one_part.BACK_OFF_MS_MIN * 2)


def test_a_crash_is_followed_by_a_start_after_a_growing_pause() -> None:
    mill = supervisor()
    now_ms, pauses = 0, []
    mill.tick(now_ms)
    for _ in range(10):
        mill.on_exit("a", 1, now_ms)
        entry = mill.parts["a"]
        assert entry.state is PartPhase.BACKING_OFF
        assert entry.act_at_ms is not None
        assert deeds(mill.tick(entry.act_at_ms - 1)) == []
        pauses.append(entry.act_at_ms - now_ms)
        now_ms = entry.act_at_ms
        assert deeds(mill.tick(now_ms)) == [Start("a")]
    for number, pause_ms in enumerate(pauses):
        ideal_ms = min(one_part.BACK_OFF_MS_MIN * 2**number, one_part.BACK_OFF_MS_MAX)
        assert abs(pause_ms - ideal_ms) <= ideal_ms * one_part.BACK_OFF_JITTER + 1
    assert mill.parts["a"].restarts == 10


def test_a_long_healthy_life_makes_the_next_restart_quick() -> None:
    mill = supervisor()
    mill.tick(0)
    now_ms = 0
    for _ in range(6):
        mill.on_exit("a", 1, now_ms)
        now_ms = mill.parts["a"].act_at_ms or 0
        mill.tick(now_ms)
    mill.on_probe("a", ProbeResult.OK, "", now_ms)
    now_ms += one_part.STEADY_MS
    mill.on_exit("a", -9, now_ms)
    assert (mill.parts["a"].act_at_ms or 0) - now_ms <= one_part.BACK_OFF_MS_MIN * 1.3


@pytest.mark.parametrize(("code", "word"), [(75, "another process"), (2, "settings are invalid")])
def test_some_exits_are_final(code: int, word: str) -> None:
    mill = supervisor()
    bring_up(mill)
    mill.on_exit("a", code, 10)
    assert state_of(mill, "a") is PartPhase.FAILED
    assert word in mill.parts["a"].reason
    assert mill.tick(10_000_000) == []
    assert Start("a") in mill.restart("a", 10_000_001)


def test_not_ready_is_shown_but_never_killed() -> None:
    mill = supervisor()
    bring_up(mill)
    for number in range(200):
        effects = mill.on_probe("a", ProbeResult.NOT_READY, "waits for MySQL", number * 5_000)
        assert not any(isinstance(effect, Terminate) for effect in effects)
    assert state_of(mill, "a") is PartPhase.UNHEALTHY
    assert mill.parts["a"].reason == "waits for MySQL"
    mill.on_probe("a", ProbeResult.OK, "", 1_000_000)
    assert state_of(mill, "a") is PartPhase.HEALTHY


def test_one_missed_probe_is_no_illness() -> None:
    mill = supervisor()
    bring_up(mill)
    for _ in range(one_part.FAILURES_TO_UNHEALTHY - 1):
        mill.on_probe("a", ProbeResult.SILENT, "time-out", 1_000)
    assert state_of(mill, "a") is PartPhase.HEALTHY
    mill.on_probe("a", ProbeResult.SILENT, "time-out", 3_000)
    assert state_of(mill, "a") is PartPhase.UNHEALTHY


def test_silence_for_long_is_a_hang_and_is_ended() -> None:
    mill = supervisor()
    bring_up(mill)
    mill.on_probe("a", ProbeResult.SILENT, "time-out", 1_000)
    quiet = mill.on_probe("a", ProbeResult.SILENT, "time-out", 1_000 + one_part.HANG_MS - 1)
    assert Terminate("a", force=True) not in quiet
    effects = mill.on_probe("a", ProbeResult.SILENT, "time-out", 1_000 + one_part.HANG_MS)
    assert Terminate("a", force=True) in effects
    mill.on_exit("a", -9, 70_000)
    assert state_of(mill, "a") is PartPhase.BACKING_OFF


def test_an_answer_ends_a_silence() -> None:
    mill = supervisor()
    bring_up(mill)
    mill.on_probe("a", ProbeResult.SILENT, "time-out", 1_000)
    mill.on_probe("a", ProbeResult.NOT_READY, "no broker", one_part.HANG_MS)
    effects = mill.on_probe("a", ProbeResult.SILENT, "time-out", one_part.HANG_MS + 2_000)
    assert not any(isinstance(effect, Terminate) for effect in effects)


def test_a_start_that_never_gets_healthy_is_ended() -> None:
    mill = supervisor()
    mill.tick(0)
    mill.on_probe("a", ProbeResult.SILENT, "refused", 59_000)
    effects = mill.tick(60_000)
    assert Terminate("a", force=True) in effects
    assert any(isinstance(e, Note) and "refused" in e.text for e in effects)


def test_a_start_that_says_what_it_waits_for_is_left_alone() -> None:
    mill = supervisor()
    mill.tick(0)
    for now_ms in range(0, 600_000, 30_000):
        effects = mill.on_probe("a", ProbeResult.NOT_READY, "recovering", now_ms)
        assert not any(isinstance(effect, Terminate) for effect in effects)
    assert state_of(mill) is PartPhase.STARTING
    assert Terminate("a", force=True) in mill.tick(570_000 + 60_000)


def test_stopping_goes_rank_by_rank() -> None:
    mill = supervisor(part("broker", 0, 2), part("mysql", 0, 3), part("collector", 1, 0))
    for name in ("broker", "mysql"):
        bring_up(mill, name)
    mill.on_probe("collector", ProbeResult.OK, "", 1)
    assert deeds(mill.stop(10)) == [Terminate("collector", force=False)]
    assert deeds(mill.on_exit("collector", 0, 20)) == [Terminate("broker", force=False)]
    assert deeds(mill.on_exit("broker", 0, 30)) == [Terminate("mysql", force=False)]
    assert deeds(mill.on_exit("mysql", 0, 40)) == [AllStopped()]
    assert deeds(mill.tick(50)) == []


def test_what_does_not_stop_is_killed() -> None:
    mill = supervisor()
    bring_up(mill)
    mill.stop(1_000)
    assert mill.next_deadline_ms == 11_000
    assert deeds(mill.tick(10_999)) == []
    assert deeds(mill.tick(11_000)) == [Terminate("a", force=True)]
    assert deeds(mill.on_exit("a", -9, 11_010)) == [AllStopped()]


def test_stopping_forgets_what_waits_and_backs_off() -> None:
    mill = supervisor(part("a"), part("b", start_rank=1))
    mill.tick(0)
    mill.on_exit("a", 1, 1)
    assert deeds(mill.stop(2)) == [AllStopped()]
    assert mill.tick(1_000_000) == []
    assert mill.next_deadline_ms is None


def test_a_crash_while_stopping_is_a_stop() -> None:
    mill = supervisor(part("a", 0, 0), part("b", 0, 1))
    bring_up(mill, "a")
    mill.on_probe("b", ProbeResult.OK, "", 1)
    mill.stop(2)
    mill.on_exit("b", -11, 3)
    assert state_of(mill, "b") is PartPhase.STOPPED
    assert deeds(mill.on_exit("a", 0, 4)) == [AllStopped()]


def test_a_restart_is_at_once_and_no_crash() -> None:
    mill = supervisor()
    bring_up(mill)
    assert deeds(mill.restart("a", 5)) == [Terminate("a", force=False)]
    assert mill.restart("a", 6) == []
    assert deeds(mill.on_exit("a", 0, 10)) == [Start("a")]
    assert mill.parts["a"].restarts == 0


def test_a_stop_overrules_a_restart() -> None:
    mill = supervisor()
    bring_up(mill)
    mill.restart("a", 5)
    mill.stop(6)
    assert deeds(mill.on_exit("a", 0, 10)) == [AllStopped()]
    assert mill.restart("a", 20) == []


def test_a_late_answer_about_a_dead_process_changes_nothing() -> None:
    mill = supervisor()
    bring_up(mill)
    mill.on_exit("a", 1, 10)
    assert mill.on_probe("a", ProbeResult.OK, "", 11) == []
    assert state_of(mill, "a") is PartPhase.BACKING_OFF


# ------------------------------------------------------------------ random lives


@dataclass
class World:
    """Processes that crash, hang and start slowly at random. Every event is followed by a check of
    the laws."""

    chance: random.Random
    mill: Supervisor
    now_ms: int = 0
    is_calm: bool = False
    running: dict[str, int] = field(default_factory=dict)
    events: list[tuple[int, int, str, str, int]] = field(default_factory=list)
    numbers: int = 0
    ended: int = 0
    healthy_once: set[str] = field(default_factory=set)
    asked_to_stop: set[str] = field(default_factory=set)

    def later(self, delay_ms: int, kind: str, name: str, generation: int) -> None:
        self.numbers += 1
        heapq.heappush(self.events, (self.now_ms + delay_ms, self.numbers, kind, name, generation))

    def perform(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case Start(name):
                    self._start(name)
                case ProbePart(name):
                    self.later(self.chance.randrange(1, 400), "answer", name, self.running[name])
                case Terminate(name, force):
                    if name in self.running:
                        self._terminate(name, force)
                case AskReplicas(_, number):
                    self.later(self.chance.randrange(1, 2_000), "copies", "", number)
                case AllStopped():
                    self.ended += 1
                case Note():
                    pass
        self.check()

    def _start(self, name: str) -> None:
        assert name not in self.running, f"{name} started while it runs"
        assert not self.mill.is_stopping, f"{name} started while stopping"
        rank = self.mill.parts[name].part.start_rank
        for other in self.mill.parts.values():
            assert other.part.start_rank >= rank or other.part.name in self.healthy_once
        self.numbers += 1
        self.running[name] = self.numbers
        self.mill.on_started(name, self.numbers, self.now_ms)
        if not self.is_calm and self.chance.random() < 0.4:
            self.later(self.chance.randrange(1, 90_000), "crash", name, self.running[name])

    def _terminate(self, name: str, force: bool) -> None:
        if not force and self.mill.is_stopping:
            rank = self.mill.parts[name].part.stop_rank
            for other in self.running:
                assert self.mill.parts[other].part.stop_rank >= rank, f"{name} before {other}"
                if self.mill.parts[name].part.takes_turns and other in self.asked_to_stop:
                    assert not self.mill.parts[other].part.takes_turns, f"{name} beside {other}"
            self.asked_to_stop.add(name)
        if force:
            self.later(5, "killed", name, self.running[name])
        elif self.chance.random() < 0.8:
            self.later(self.chance.randrange(1, 9_000), "ended", name, self.running[name])

    def step(self) -> None:
        """Handle the next event, or the supervisor's next deadline."""
        deadline = self.mill.next_deadline_ms
        if self.events and (deadline is None or self.events[0][0] <= deadline):
            self.now_ms, _, kind, name, generation = heapq.heappop(self.events)
            if kind == "copies":
                counts = [0] if self.is_calm else [0, 0, 1, 3, None]
                count = self.chance.choice(counts)
                self.perform(
                    self.mill.on_copies(generation, Readiness(count, "brokers"), self.now_ms)
                )
                return
            if self.running.get(name) != generation:
                return
            self.perform(self._happen(kind, name))
        else:
            assert deadline is not None, "nothing will ever happen again"
            self.now_ms = max(self.now_ms, deadline)
            self.perform(self.mill.tick(self.now_ms))

    def _happen(self, kind: str, name: str) -> list[Effect]:
        if kind == "answer":
            answer = ProbeResult.OK if self.is_calm else self._random_answer()
            if answer is ProbeResult.OK and self.mill.parts[name].state is not PartPhase.STOPPING:
                self.healthy_once.add(name)
            return self.mill.on_probe(name, answer, str(answer), self.now_ms)
        del self.running[name]
        codes = {"killed": -9, "ended": 0, "crash": self.chance.choice([1, 1, 0, -11, 75, 2])}
        return self.mill.on_exit(name, codes[kind], self.now_ms)

    def _random_answer(self) -> ProbeResult:
        return self.chance.choices(list(ProbeResult), [6, 2, 2])[0]

    def check(self) -> None:
        for name, entry in self.mill.parts.items():
            assert (entry.state in LIVE) == (name in self.running), (name, entry.state)
            if entry.state is PartPhase.HEALTHY:
                assert name in self.healthy_once
        assert self.ended <= 1


SEEDS = range(
    int(os.environ.get("MILLRACE_SEED", "0")), int(os.environ.get("MILLRACE_SEED", "0")) + 40
)


@pytest.mark.parametrize("seed", SEEDS)
def test_random_lives_keep_the_laws(seed: int) -> None:
    """In the first phase processes fail at random. In the second phase they work, so every part
    that may run must become healthy. Then a stop must end all of them."""
    print(f"replay with MILLRACE_SEED={seed}")
    chance = random.Random(seed)
    parts = [
        part(
            f"p{number}",
            chance.randrange(3),
            chance.randrange(4),
            takes_turns=chance.random() < 0.5,
        )
        for number in range(chance.randrange(1, 8))
    ]
    world = World(chance, Supervisor(parts, chance))
    world.perform(world.mill.tick(0))
    for _ in range(400):
        if chance.random() < 0.02:
            world.perform(world.mill.restart(chance.choice(parts).name, world.now_ms))
        if chance.random() < 0.02:
            changed = {one.name for one in parts if chance.random() < 0.5}
            world.perform(world.mill.replace(parts, changed, world.now_ms))
        if world.mill.next_deadline_ms is None and not world.events:
            break
        world.step()

    world.is_calm = True
    world.events = [event for event in world.events if event[2] != "crash"]
    heapq.heapify(world.events)
    for entry in world.mill.parts.values():
        if entry.state is PartPhase.FAILED:
            world.perform(world.mill.restart(entry.part.name, world.now_ms))
    for _ in range(4_000):
        if world.mill.is_healthy:
            break
        world.step()
    assert world.mill.is_healthy, {n: e.state for n, e in world.mill.parts.items()}

    world.perform(world.mill.stop(world.now_ms))
    for _ in range(400):
        if world.ended:
            break
        world.step()
    assert world.ended == 1
    assert world.running == {}


def test_a_part_stopped_by_hand_stays_stopped_until_it_is_asked_for() -> None:
    mill = supervisor()
    bring_up(mill)
    assert deeds(mill.stop_part("a", 10)) == [Terminate("a", False)]
    assert deeds(mill.on_exit("a", 0, 20)) == []
    assert state_of(mill) is PartPhase.STOPPED
    assert deeds(mill.tick(10_000_000)) == []
    assert deeds(mill.restart("a", 10_000_001)) == [Start("a")]


def test_stopping_a_part_that_is_to_be_restarted_stops_it() -> None:
    mill = supervisor()
    bring_up(mill)
    mill.restart("a", 10)
    mill.stop_part("a", 11)
    mill.on_exit("a", 0, 20)
    assert state_of(mill) is PartPhase.STOPPED
    mill.restart("a", 30)
    mill.on_exit("a", 1, 40)
    assert state_of(mill) is PartPhase.BACKING_OFF
    mill.stop_part("a", 50)
    assert state_of(mill) is PartPhase.STOPPED
    assert mill.next_deadline_ms is None
