"""The supervisor applies another configuration: which parts end, wait, or restart in turns."""

import dataclasses

from appliance.mill.parts import Part
from appliance.supervisor import core, one_part
from appliance.supervisor.core import Supervisor
from appliance.supervisor.effects import (
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
from appliance.supervisor.turns import IN_SYNC_MS, LOOK_EVERY_MS
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
    assert state_of(mill, "c") is PartPhase.WAITING
    assert mill.parts["c"].reason == "waits for b"
    assert deeds(mill.on_exit("b", 0, 30)) == [Start("b")]
    assert state_of(mill, "c") is PartPhase.WAITING
    mill.on_started("b", 7, 30)
    assert Start("c") in mill.on_probe("b", ProbeResult.OK, "", 40)
    assert [mill.parts[name].part.port for name in ("b", "c", "o")] == [2, 2, 1]
    assert state_of(mill, "o") is PartPhase.HEALTHY


def test_a_part_that_left_is_forgotten_and_a_new_one_starts_after_it() -> None:
    mill = supervisor(part("a"))
    bring_up(mill)
    assert exchange(mill, [part("n")], set(), 10) == [Terminate("a", False)]
    assert state_of(mill, "n") is PartPhase.WAITING
    assert deeds(mill.on_exit("a", 0, 20)) == [Start("n")]
    assert list(mill.parts) == ["n"]
    # A late result of a probe of the removed part is ignored.
    assert mill.on_probe("a", ProbeResult.OK, "", 30) == []


def test_a_part_that_gave_up_restarts_with_its_successor() -> None:
    mill = supervisor(part("a"))
    mill.tick(0)
    mill.on_exit("a", core.EXIT_SETTINGS, 5)
    assert state_of(mill) is PartPhase.FAILED
    assert exchange(mill, [part("a")], set(), 10) == []
    assert exchange(mill, [moved("a")], {"a"}, 10) == [Start("a")]


def test_an_unchanged_part_that_crashes_during_the_exchange_does_not_wait() -> None:
    mill = supervisor(part("a"), part("b"))
    bring_up(mill, "a")
    bring_up(mill, "b")
    exchange(mill, [moved("a"), part("b")], {"a"}, 10)
    mill.on_exit("b", 1, 20)
    assert Start("b") in mill.tick(20 + one_part.BACK_OFF_MS_MAX)


def test_a_stop_of_everything_ends_an_exchange() -> None:
    mill = supervisor(part("a"))
    bring_up(mill)
    exchange(mill, [moved("a")], {"a"}, 10)
    mill.stop(20)
    assert AllStopped() in mill.on_exit("a", 0, 30)
    assert state_of(mill) is PartPhase.STOPPED
    assert exchange(mill, [moved("a")], {"a"}, 40) == []


BROKERS = [part(f"b{number}", 0, 2, takes_turns=True) for number in (1, 2, 3)]


def cluster(*others: Part) -> Supervisor:
    mill = supervisor(*BROKERS, *others)
    for one in (*BROKERS, *others):
        bring_up(mill, one.name)
    return mill


def comes_back(mill: Supervisor, name: str, now_ms: int) -> list[Effect]:
    """Let a part that was asked to stop end, start again and become healthy. Return the effects
    that follow."""
    assert Start(name) in mill.on_exit(name, 0, now_ms)
    mill.on_started(name, 200, now_ms)
    return deeds(mill.on_probe(name, ProbeResult.OK, "", now_ms))


def turn(
    mill: Supervisor,
    effects: list[Effect],
    now_ms: int,
    count: int | None = 0,
    controller: str | None = None,
) -> list[Effect]:
    """Report `count` partitions out of sync to the check that the effects request. Return the next
    effects."""
    ready = Readiness(count, "the status of b3", controller)
    (look,) = (one for one in effects if isinstance(one, AskReplicas))
    assert look.parts == ("b1", "b2", "b3")
    return deeds(mill.on_copies(look.number, ready, now_ms))


def test_brokers_start_together_and_stop_one_after_the_other() -> None:
    mill = supervisor(*BROKERS, part("mysql", 0, 3), part("collector", 1, 0))
    started = [Start("b1"), Start("b2"), Start("b3"), Start("mysql")]
    assert deeds(mill.tick(0)) == started
    for name in ("b1", "b2", "b3", "mysql", "collector"):
        mill.on_probe(name, ProbeResult.OK, "", 1)
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


def test_changed_brokers_restart_in_turn_each_when_all_are_healthy() -> None:
    mill = cluster(part("collector", 1, 0))
    parts = [*BROKERS, part("collector", 1, 0)]
    looked = exchange(mill, parts, {"b1", "b2", "b3"}, 10)
    assert turn(mill, looked, 10) == [Terminate("b1", False)]
    assert deeds(mill.on_exit("b1", 0, 20)) == [Start("b1")]
    mill.on_started("b1", 7, 20)
    assert deeds(mill.on_probe("b1", ProbeResult.NOT_READY, "waits", 30)) == []
    looked = deeds(mill.on_probe("b1", ProbeResult.OK, "", 40))
    assert turn(mill, looked, 45) == [Terminate("b2", False)]
    assert turn(mill, comes_back(mill, "b2", 50), 55) == [Terminate("b3", False)]
    assert comes_back(mill, "b3", 60) == []
    assert mill.is_healthy
    assert deeds(mill.tick(61)) == []


def test_brokers_that_open_one_more_port_restart_in_turn() -> None:
    mill = cluster()
    parts = [dataclasses.replace(one, ports=(*one.ports, ("ports.net", 9192))) for one in BROKERS]
    assert turn(mill, exchange(mill, parts, {"b1", "b2", "b3"}, 10), 10) == [Terminate("b1", False)]
    assert turn(mill, comes_back(mill, "b1", 20), 25) == [Terminate("b2", False)]
    assert turn(mill, comes_back(mill, "b2", 30), 35) == [Terminate("b3", False)]
    assert comes_back(mill, "b3", 40) == []
    assert [mill.parts[one.name].part for one in parts] == parts


def test_a_broker_that_does_not_come_back_keeps_the_others_as_they_were() -> None:
    mill = cluster()
    turn(mill, exchange(mill, BROKERS, {"b1", "b2", "b3"}, 10), 10)
    mill.on_exit("b1", 0, 20)
    mill.on_exit("b1", core.EXIT_SETTINGS, 30)
    assert state_of(mill, "b1") is PartPhase.FAILED
    assert deeds(mill.tick(1_000_000)) == [ProbePart("b2"), ProbePart("b3")]
    # The next change restarts all brokers, beginning with the broker that is down.
    assert exchange(mill, BROKERS, {"b1"}, 1_000_010) == [Start("b1")]
    mill.on_started("b1", 8, 1_000_010)
    looked = deeds(mill.on_probe("b1", ProbeResult.OK, "", 1_000_020))
    assert turn(mill, looked, 1_000_030) == [Terminate("b2", False)]


def test_a_broker_that_is_unwell_has_its_turn_first() -> None:
    mill = cluster()
    for _ in range(one_part.FAILURES_TO_UNHEALTHY):
        mill.on_probe("b2", ProbeResult.NOT_READY, "no majority", 5)
    assert exchange(mill, BROKERS, {"b1", "b2", "b3"}, 10) == [Terminate("b2", False)]
    assert turn(mill, comes_back(mill, "b2", 20), 20) == [Terminate("b1", False)]
    # A broker that dies starts with its new settings. The other brokers wait until it is healthy.
    mill.on_exit("b3", -9, 25)
    assert state_of(mill, "b3") is PartPhase.STARTING
    assert comes_back(mill, "b1", 30) == []
    mill.on_probe("b3", ProbeResult.OK, "", 40)
    assert mill.is_healthy


def test_other_parts_do_not_wait_while_brokers_take_turns() -> None:
    monitor = part("monitor")
    mill = cluster(monitor, part("collector", 1, 0))
    parts = [*BROKERS, moved("monitor"), moved("collector", 1, 0)]
    changed = {"b1", "b2", "b3", "monitor", "collector"}
    begun = exchange(mill, parts, changed, 10)
    assert begun[:2] == [Terminate("monitor", False), Terminate("collector", False)]
    assert turn(mill, begun, 10) == [Terminate("b1", False)]
    assert deeds(mill.on_exit("b1", 0, 20)) == [Start("b1")]
    assert deeds(mill.on_exit("monitor", 0, 30)) == []
    assert deeds(mill.on_exit("collector", 0, 40)) == [Start("monitor")]
    assert deeds(mill.on_probe("monitor", ProbeResult.OK, "", 50)) == [Start("collector")]
    # Broker b1 has not become healthy yet. The other parts did not wait for it.
    assert state_of(mill, "b1") is PartPhase.STARTING


def test_brokers_that_move_to_other_ports_all_end_before_one_starts() -> None:
    mill = cluster()
    parts = [dataclasses.replace(one, port=2) for one in BROKERS]
    assert exchange(mill, parts, {"b1", "b2", "b3"}, 10) == [Terminate("b1", False)]
    assert deeds(mill.on_exit("b1", 0, 20)) == [Terminate("b2", False)]
    assert deeds(mill.on_exit("b2", 0, 30)) == [Terminate("b3", False)]
    assert deeds(mill.on_exit("b3", 0, 40)) == [Start("b1"), Start("b2"), Start("b3")]


def test_a_broker_stopped_by_hand_before_its_turn_stays_stopped() -> None:
    mill = cluster()
    turn(mill, exchange(mill, BROKERS, {"b1", "b2", "b3"}, 10), 10)
    assert deeds(mill.stop_part("b2", 11)) == [Terminate("b2", False)]
    assert deeds(mill.on_exit("b2", 0, 20)) == []
    assert state_of(mill, "b2") is PartPhase.STOPPED
    assert comes_back(mill, "b1", 30) == []
    assert deeds(mill.restart("b2", 40)) == [Start("b2")]
    mill.on_started("b2", 9, 40)
    looked = deeds(mill.on_probe("b2", ProbeResult.OK, "", 50))
    assert turn(mill, looked, 50) == [Terminate("b3", False)]


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


def notes(effects: list[Effect]) -> list[str]:
    return [one.text for one in effects if isinstance(one, Note) and one.is_warning]


def test_the_next_broker_waits_until_every_copy_is_in_sync_again() -> None:
    """A restarted broker is healthy before it has fetched all the records that it missed. So health
    is not enough for the next restart."""
    mill = cluster()
    turn(mill, exchange(mill, BROKERS, {"b1", "b2", "b3"}, 10), 10)
    looked = comes_back(mill, "b1", 20)
    assert turn(mill, looked, 30, 3) == []
    assert not mill.parts["b1"].awaits_its_turn
    assert mill.reason_of(mill.parts["b1"]) == ""
    assert mill.reason_of(mill.parts["b2"]) == (
        "restarts in its turn; waits for 3 partitions that are not in sync"
    )
    # The supervisor waits LOOK_EVERY_MS before it asks the brokers again.
    assert deeds(mill.tick(31)) == []
    assert mill.next_deadline_ms == 30 + LOOK_EVERY_MS
    looked = deeds(mill.tick(30 + LOOK_EVERY_MS))
    assert deeds(mill.tick(31 + LOOK_EVERY_MS)) == [], "the answer is on its way"
    assert turn(mill, looked, 40 + LOOK_EVERY_MS, 1) == []
    assert "waits for 1 partition that is not in sync" in mill.reason_of(mill.parts["b3"])
    looked = deeds(mill.tick(40 + 2 * LOOK_EVERY_MS))
    assert turn(mill, looked, 50 + 2 * LOOK_EVERY_MS) == [Terminate("b2", False)]
    assert mill.reason_of(mill.parts["b3"]) == ""


def test_a_broker_without_a_status_is_waited_for_too() -> None:
    mill = cluster()
    assert turn(mill, exchange(mill, BROKERS, {"b1", "b2", "b3"}, 10), 10, None) == []
    assert mill.reason_of(mill.parts["b1"]) == ("restarts in its turn; waits for the status of b3")


def test_what_was_seen_before_a_broker_died_begins_no_turn() -> None:
    mill = cluster()
    (look,) = exchange(mill, BROKERS, {"b1", "b2"}, 10)
    assert isinstance(look, AskReplicas)
    mill.on_exit("b3", -9, 20)
    assert deeds(mill.on_copies(look.number, Readiness(0), 30)) == []
    assert mill.reason_of(mill.parts["b1"]) == "restarts in its turn; waits for b3"
    (restarted,) = [
        one for one in mill.tick(20 + one_part.BACK_OFF_MS_MAX) if isinstance(one, Start)
    ]
    assert restarted == Start("b3")
    mill.on_started("b3", 9, 40_000)
    looked = deeds(mill.on_probe("b3", ProbeResult.OK, "", 40_001))
    assert turn(mill, looked, 40_002) == [Terminate("b1", False)]


def waiting_in_vain(mill: Supervisor) -> tuple[list[Effect], int]:
    """Restart three brokers in turns while two partitions never get in sync, until the supervisor
    gives up. Return the effects of the last report, and its time."""
    effects, now_ms = mill.replace(BROKERS, {"b1", "b2", "b3"}, 0), 0
    while not mill.turns.is_over:
        (look,) = (one for one in effects if isinstance(one, AskReplicas))
        effects = mill.on_copies(look.number, Readiness(2), now_ms)
        assert not [one for one in effects if isinstance(one, Terminate)]
        if not mill.turns.is_over:
            now_ms += LOOK_EVERY_MS
            effects = mill.tick(now_ms)
    return effects, now_ms


def test_a_round_that_waits_in_vain_ends_and_the_brokers_run_as_they_were() -> None:
    mill = cluster()
    effects, now_ms = waiting_in_vain(mill)
    assert now_ms == IN_SYNC_MS
    assert notes(effects) == [mill.round_ended]
    assert mill.round_ended.startswith(
        "not restarted: b1, b2, b3. 300 s were not enough for 2 partitions that are not in sync."
    )
    assert mill.is_healthy
    assert mill.reason_of(mill.parts["b1"]) == (
        "not restarted, because the restart of the brokers before it did not succeed"
    )
    # After giving up, the supervisor asks no broker until the user requests the change again.
    asked = [one for one in mill.tick(now_ms + 10 * IN_SYNC_MS) if not isinstance(one, ProbePart)]
    assert asked == []
    looked = exchange(mill, BROKERS, set(), now_ms + 11 * IN_SYNC_MS)
    assert mill.round_ended == ""
    assert turn(mill, looked, now_ms + 11 * IN_SYNC_MS) == [Terminate("b1", False)]


def test_a_broker_restarted_by_hand_after_that_gets_its_new_settings() -> None:
    mill = cluster()
    _, now_ms = waiting_in_vain(mill)
    for name in ("b1", "b2", "b3"):
        assert name in mill.round_ended
        assert deeds(mill.restart(name, now_ms)) == [Terminate(name, False)]
        assert comes_back(mill, name, now_ms) == []
        assert not mill.parts[name].awaits_its_turn
    assert mill.round_ended == ""


def test_a_round_does_not_end_while_partitions_come_in_sync() -> None:
    mill = cluster()
    effects, now_ms = exchange(mill, BROKERS, {"b1", "b2", "b3"}, 0), 0
    for count in range(20, 0, -1):
        assert turn(mill, effects, now_ms, count) == []
        now_ms += IN_SYNC_MS - 1
        effects = [one for one in mill.tick(now_ms) if isinstance(one, AskReplicas)]
    assert turn(mill, effects, now_ms) == [Terminate("b1", False)]


def test_a_stop_of_everything_waits_for_no_copies() -> None:
    mill = cluster()
    (look,) = exchange(mill, BROKERS, {"b1", "b2", "b3"}, 10)
    assert isinstance(look, AskReplicas)
    assert deeds(mill.stop(20)) == [Terminate("b1", False)]
    assert mill.on_copies(look.number, Readiness(0), 30) == []
    assert deeds(mill.on_exit("b1", 0, 40)) == [Terminate("b2", False)]


def test_a_rolling_restart_leaves_the_active_controller_to_the_end() -> None:
    mill = cluster(part("collector", 1, 0))
    looked = deeds(mill.restart_in_turns(["b1", "b2", "b3"], 10))
    assert turn(mill, looked, 10, controller="b1") == [Terminate("b2", False)]
    assert turn(mill, comes_back(mill, "b2", 20), 25, controller="b1") == [Terminate("b3", False)]
    assert turn(mill, comes_back(mill, "b3", 30), 35, controller="b1") == [Terminate("b1", False)]
    assert comes_back(mill, "b1", 40) == []
    assert mill.is_healthy
    assert deeds(mill.tick(41)) == []


def test_a_broker_that_is_unwell_restarts_before_the_controller_is_asked_for() -> None:
    mill = cluster()
    for _ in range(one_part.FAILURES_TO_UNHEALTHY):
        mill.on_probe("b3", ProbeResult.NOT_READY, "no majority", 5)
    assert deeds(mill.restart_in_turns(["b1", "b2", "b3"], 10)) == [Terminate("b3", False)]


def test_a_rolling_restart_of_one_broker_leaves_the_others_alone() -> None:
    mill = cluster()
    assert turn(mill, deeds(mill.restart_in_turns(["b2"], 10)), 10) == [Terminate("b2", False)]
    assert comes_back(mill, "b2", 20) == []
    assert mill.is_healthy


def test_a_rolling_restart_starts_a_broker_that_has_no_process() -> None:
    mill = cluster()
    mill.stop_part("b2", 5)
    mill.on_exit("b2", 0, 6)
    assert state_of(mill, "b2") is PartPhase.STOPPED
    assert deeds(mill.restart_in_turns(["b1", "b2", "b3"], 10)) == [Start("b2")]
    looked = deeds(mill.on_probe("b2", ProbeResult.OK, "", 20))
    assert turn(mill, looked, 30) == [Terminate("b1", False)]
    # A broker that crashed and waits for its next start has no process to terminate.
    mill = cluster()
    mill.on_exit("b3", -9, 5)
    assert deeds(mill.restart_in_turns(["b3"], 10)) == [Start("b3")]
    assert not mill.parts["b3"].awaits_its_turn


def test_a_rolling_restart_that_is_asked_for_again_restarts_no_broker_twice() -> None:
    mill = cluster()
    turn(mill, deeds(mill.restart_in_turns(["b1", "b2", "b3"], 10)), 10)
    looked = comes_back(mill, "b1", 20)
    looked = deeds(mill.restart_in_turns(["b1", "b2", "b3"], 25)) or looked
    assert turn(mill, looked, 30) == [Terminate("b2", False)]
    assert turn(mill, comes_back(mill, "b2", 40), 45) == [Terminate("b3", False)]
    assert comes_back(mill, "b3", 50) == []


def test_a_rolling_restart_continues_where_it_waited_in_vain() -> None:
    mill = cluster()
    _, now_ms = waiting_in_vain(mill)
    looked = deeds(mill.restart_in_turns(["b1", "b2", "b3"], now_ms))
    assert mill.round_ended == ""
    assert turn(mill, looked, now_ms) == [Terminate("b1", False)]


def test_a_mill_that_stops_begins_no_rolling_restart() -> None:
    mill = cluster()
    mill.stop(10)
    assert mill.restart_in_turns(["b1"], 20) == []
    assert not mill.parts["b1"].is_changing
