"""The supervisor goes over to another configuration: what ends, what waits, and who takes turns."""

import dataclasses

from appliance.parts import Part
from appliance.supervisor import core
from appliance.supervisor.core import Supervisor
from appliance.supervisor.effects import (
    AllStopped,
    Answer,
    Ask,
    Effect,
    Start,
    State,
    Terminate,
)
from tests.unit.appliance.supervised import bring_up, deeds, part, state_of, supervisor


def exchange(mill: Supervisor, parts: list[Part], changed: set[str], now_ms: int) -> list[Effect]:
    return deeds(mill.replace(parts, changed, now_ms))


def moved(name: str, start_rank: int = 0, stop_rank: int = 0) -> Part:
    return dataclasses.replace(part(name, start_rank, stop_rank), port=2)


def test_changed_parts_stop_in_their_order_and_start_when_all_have_ended() -> None:
    broker, collector, other = part("b", 0, 2), part("c", 1, 0), part("o", 1, 0)
    mill = supervisor(broker, collector, other)
    for name in ("b", "c", "o"):
        bring_up(mill, name)
    parts = [moved("b", 0, 2), moved("c", 1, 0), other]
    assert exchange(mill, parts, {"b", "c"}, 10) == [Terminate("c", False)]
    assert deeds(mill.on_exit("c", 0, 20)) == [Terminate("b", False)]
    assert state_of(mill, "c") is State.WAITING
    assert mill.parts["c"].reason == "waits for b"
    assert deeds(mill.on_exit("b", 0, 30)) == [Start("b")]
    assert state_of(mill, "c") is State.WAITING
    mill.on_started("b", 7, 30)
    assert Start("c") in mill.on_probe("b", Answer.OK, "", 40)
    assert [mill.parts[name].part.port for name in ("b", "c", "o")] == [2, 2, 1]
    assert state_of(mill, "o") is State.HEALTHY


def test_a_part_that_left_is_forgotten_and_a_new_one_starts_after_it() -> None:
    mill = supervisor(part("a"))
    bring_up(mill)
    assert exchange(mill, [part("n")], set(), 10) == [Terminate("a", False)]
    assert state_of(mill, "n") is State.WAITING
    assert deeds(mill.on_exit("a", 0, 20)) == [Start("n")]
    assert list(mill.parts) == ["n"]
    # What a probe of it finds afterwards is nobody's.
    assert mill.on_probe("a", Answer.OK, "", 30) == []


def test_a_part_that_gave_up_starts_anew_with_its_successor() -> None:
    mill = supervisor(part("a"))
    mill.tick(0)
    mill.on_exit("a", core.EXIT_SETTINGS, 5)
    assert state_of(mill) is State.FAILED
    assert exchange(mill, [part("a")], set(), 10) == []
    assert exchange(mill, [moved("a")], {"a"}, 10) == [Start("a")]


def test_an_unchanged_part_that_crashes_meanwhile_does_not_wait() -> None:
    mill = supervisor(part("a"), part("b"))
    bring_up(mill, "a")
    bring_up(mill, "b")
    exchange(mill, [moved("a"), part("b")], {"a"}, 10)
    mill.on_exit("b", 1, 20)
    assert Start("b") in mill.tick(20 + core.BACK_OFF_MS_MAX)


def test_a_stop_of_everything_ends_an_exchange() -> None:
    mill = supervisor(part("a"))
    bring_up(mill)
    exchange(mill, [moved("a")], {"a"}, 10)
    mill.stop(20)
    assert AllStopped() in mill.on_exit("a", 0, 30)
    assert state_of(mill) is State.STOPPED
    assert exchange(mill, [moved("a")], {"a"}, 40) == []


BROKERS = [part(f"b{number}", 0, 2, takes_turns=True) for number in (1, 2, 3)]


def cluster(*others: Part) -> Supervisor:
    mill = supervisor(*BROKERS, *others)
    for one in (*BROKERS, *others):
        bring_up(mill, one.name)
    return mill


def comes_back(mill: Supervisor, name: str, now_ms: int) -> list[Effect]:
    """A part that was asked to stop ends, starts and is healthy; what is done at the end of it."""
    assert Start(name) in mill.on_exit(name, 0, now_ms)
    mill.on_started(name, 200, now_ms)
    return deeds(mill.on_probe(name, Answer.OK, "", now_ms))


def test_brokers_start_together_and_stop_one_after_the_other() -> None:
    mill = supervisor(*BROKERS, part("mysql", 0, 3), part("collector", 1, 0))
    started = [Start("b1"), Start("b2"), Start("b3"), Start("mysql")]
    assert deeds(mill.tick(0)) == started
    for name in ("b1", "b2", "b3", "mysql", "collector"):
        mill.on_probe(name, Answer.OK, "", 1)
    assert deeds(mill.stop(10)) == [Terminate("collector", False)]
    assert deeds(mill.on_exit("collector", 0, 20)) == [Terminate("b1", False)]
    assert deeds(mill.tick(25)) == []
    assert deeds(mill.on_exit("b1", 0, 30)) == [Terminate("b2", False)]
    assert deeds(mill.on_exit("b2", 0, 40)) == [Terminate("b3", False)]
    assert deeds(mill.on_exit("b3", 0, 50)) == [Terminate("mysql", False)]


def test_a_broker_that_does_not_stop_is_killed_and_the_next_one_follows() -> None:
    mill = cluster()
    assert deeds(mill.stop(10)) == [Terminate("b1", False)]
    assert Terminate("b1", True) in mill.tick(10_010)
    assert deeds(mill.on_exit("b1", -9, 10_020)) == [Terminate("b2", False)]


def test_changed_brokers_start_anew_one_after_the_other_each_when_all_are_healthy() -> None:
    mill = cluster(part("collector", 1, 0))
    parts = [*BROKERS, part("collector", 1, 0)]
    assert exchange(mill, parts, {"b1", "b2", "b3"}, 10) == [Terminate("b1", False)]
    assert deeds(mill.on_exit("b1", 0, 20)) == [Start("b1")]
    mill.on_started("b1", 7, 20)
    assert deeds(mill.on_probe("b1", Answer.NOT_READY, "waits", 30)) == []
    # At no moment all parts are healthy before the last has had its turn: `up` waits for that.
    assert deeds(mill.on_probe("b1", Answer.OK, "", 40)) == [Terminate("b2", False)]
    assert comes_back(mill, "b2", 50) == [Terminate("b3", False)]
    assert comes_back(mill, "b3", 60) == []
    assert mill.is_healthy
    assert deeds(mill.tick(61)) == []


def test_a_broker_that_does_not_come_back_keeps_the_others_as_they_were() -> None:
    mill = cluster()
    exchange(mill, BROKERS, {"b1", "b2", "b3"}, 10)
    mill.on_exit("b1", 0, 20)
    mill.on_exit("b1", core.EXIT_SETTINGS, 30)
    assert state_of(mill, "b1") is State.FAILED
    assert deeds(mill.tick(1_000_000)) == [Ask("b2"), Ask("b3")]
    # The next change goes to all of them, to the one that serves nobody first.
    assert exchange(mill, BROKERS, {"b1"}, 1_000_010) == [Start("b1")]
    mill.on_started("b1", 8, 1_000_010)
    assert deeds(mill.on_probe("b1", Answer.OK, "", 1_000_020)) == [Terminate("b2", False)]


def test_a_broker_that_is_unwell_has_its_turn_first() -> None:
    mill = cluster()
    for _ in range(core.FAILURES_TO_UNHEALTHY):
        mill.on_probe("b2", Answer.NOT_READY, "no majority", 5)
    assert exchange(mill, BROKERS, {"b1", "b2", "b3"}, 10) == [Terminate("b2", False)]
    assert comes_back(mill, "b2", 20) == [Terminate("b1", False)]
    # One that dies by itself starts with what it was to be told, and the others wait for it.
    mill.on_exit("b3", -9, 25)
    assert state_of(mill, "b3") is State.STARTING
    assert comes_back(mill, "b1", 30) == []
    mill.on_probe("b3", Answer.OK, "", 40)
    assert mill.is_healthy


def test_nobody_waits_while_brokers_take_turns() -> None:
    monitor = part("monitor")
    mill = cluster(monitor, part("collector", 1, 0))
    parts = [*BROKERS, moved("monitor"), moved("collector", 1, 0)]
    changed = {"b1", "b2", "b3", "monitor", "collector"}
    assert exchange(mill, parts, changed, 10) == [
        Terminate("monitor", False), Terminate("collector", False), Terminate("b1", False)
    ]  # fmt: skip
    assert deeds(mill.on_exit("b1", 0, 20)) == [Start("b1")]
    assert deeds(mill.on_exit("monitor", 0, 30)) == []
    assert deeds(mill.on_exit("collector", 0, 40)) == [Start("monitor")]
    assert deeds(mill.on_probe("monitor", Answer.OK, "", 50)) == [Start("collector")]
    # The first broker is still on its way back.
    assert state_of(mill, "b1") is State.STARTING


def test_brokers_that_move_to_other_ports_all_end_before_one_starts() -> None:
    mill = cluster()
    parts = [dataclasses.replace(one, port=2) for one in BROKERS]
    assert exchange(mill, parts, {"b1", "b2", "b3"}, 10) == [Terminate("b1", False)]
    assert deeds(mill.on_exit("b1", 0, 20)) == [Terminate("b2", False)]
    assert deeds(mill.on_exit("b2", 0, 30)) == [Terminate("b3", False)]
    assert deeds(mill.on_exit("b3", 0, 40)) == [Start("b1"), Start("b2"), Start("b3")]


def test_a_broker_stopped_by_hand_before_its_turn_stays_stopped() -> None:
    mill = cluster()
    exchange(mill, BROKERS, {"b1", "b2", "b3"}, 10)
    assert deeds(mill.stop_part("b2", 11)) == [Terminate("b2", False)]
    assert deeds(mill.on_exit("b2", 0, 20)) == []
    assert state_of(mill, "b2") is State.STOPPED
    assert comes_back(mill, "b1", 30) == []
    assert deeds(mill.restart("b2", 40)) == [Start("b2")]
    mill.on_started("b2", 9, 40)
    assert deeds(mill.on_probe("b2", Answer.OK, "", 50)) == [Terminate("b3", False)]


def test_a_change_that_waits_for_another_part_is_not_forgotten_over_the_next() -> None:
    mill = supervisor(part("b", 0, 2), part("c", 1, 0), part("o"))
    for name in ("b", "o", "c"):
        bring_up(mill, name)
    exchange(mill, [moved("b", 0, 2), moved("c", 1, 0), part("o")], {"b", "c"}, 10)
    exchange(mill, [moved("b", 0, 2), moved("c", 1, 0), moved("o")], {"o"}, 15)
    assert deeds(mill.on_exit("c", 0, 20)) == []
    assert deeds(mill.on_exit("o", 0, 25)) == [Terminate("b", False)]
    mill.on_exit("b", 0, 30)
    assert mill.parts["b"].part.port == 2
