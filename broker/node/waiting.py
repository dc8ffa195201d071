"""Makes the problem texts that name other brokers: those for which this broker waits, before it has
joined or without a quorum, and those whose clocks are wrong."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from broker.cluster.clocks import CLOCK_LIMIT_MS, WrongClock
from broker.cluster.found import listed
from broker.cluster.metadata import Metadata
from broker.cluster.moves import MovedBrokers
from broker.config import BROKER_LISTENER
from broker.metadata.broker_image import BrokerImage
from broker.node.joining import ClusterJoin
from broker.quorum.voters import majority_of
from broker.sessions.peers import Peers, Silence
from broker.world import End
from protocol.status import Problem
from protocol.types import NO_NODE

_WORDS = {
    End.REFUSED: "refuses connections",
    End.TIMED_OUT: "gives no answer",
    End.UNREACHABLE: "cannot be reached",
    End.UNRESOLVED: "has a host name that cannot be resolved",
    End.EOF: "closed the connection and has not answered again",
    End.RESET: "closed the connection and has not answered again",
}
"""The text for the way in which the last link to a node ended."""

LEADER_SILENT_MS = 2_000
"""The time in milliseconds without an answer after which the quorum's leader is reported as silent.

A voter that requests pre-votes and gets no majority remains a follower of its last leader
(KIP-996). Without this limit, the last broker that runs would name a dead leader for ever. An
election takes less time.
"""


def waits(
    joining: ClusterJoin, metadata: Metadata | None, node_id: int, now_ms: int, *, is_serving: bool
) -> list[Problem]:
    """Return the problems that keep this broker of a cluster from working; empty if there is none.

    `now_ms` is monotonic. `metadata` is None before the broker has joined. A serving broker is not
    reported as waiting during a short election.
    """
    moved = [] if metadata is None else _moved(joining.moves, metadata)
    waiting = _waiting(joining, metadata, node_id, now_ms, is_serving=is_serving)
    return [*moved, *waiting]


def _moved(moves: MovedBrokers, metadata: Metadata) -> list[Problem]:
    """Return the problems of disks at other addresses, which do not vote (decision 0220)."""
    problems = []
    if moves.leaves_no_majority and metadata.quorum.leader_id == NO_NODE:
        text = (
            f"no controller can be elected, because brokers {listed(moves.voters)} were moved "
            "together: each can be an old copy, and waits for a controller before it votes. Start "
            "one of them at its old address first"
        )
        problems.append(Problem("moved_together", text))
    if metadata.quorum.must_catch_up and moves.own is not None:
        text = (
            f"the data folder of this broker was used at {moves.own.before}, and the broker is now "
            f"at {moves.own.now}. The folder can be an old copy, so the broker does not vote until "
            "it has all records of the controller"
        )
        problems.append(Problem("moved_alone", text))
    return problems


def _waiting(
    joining: ClusterJoin, metadata: Metadata | None, node_id: int, now_ms: int, *, is_serving: bool
) -> list[Problem]:
    peers = joining.peers
    if metadata is None:
        missing = joining.birth.waits_for
        if not missing:
            return []
        text = (
            "a new cluster begins when all of its brokers are up; this broker waits for "
            f"{_each(missing, peers, now_ms)}"
        )
        return [Problem("waits_for_brokers", text)]
    voters = [key.node_id for key in metadata.quorum.voters]
    leader_id = metadata.quorum.leader_id
    if leader_id == NO_NODE and not voters:
        text = (
            "this broker joins a cluster, and waits for the leader of its metadata: "
            f"{_each(joining.other_ids, peers, now_ms)}"
        )
        return [Problem("waits_for_cluster", text)]
    is_leader_silent = _has_been_silent(peers.silence_of(leader_id), now_ms)
    if leader_id == NO_NODE or (leader_id != node_id and is_leader_silent):
        others = [one for one in voters if one != node_id]
        silent = [one for one in others if _is_silent(peers.silence_of(one), is_serving)]
        is_short = len(voters) - len(silent) < majority_of(len(voters))
        if is_short or (leader_id == NO_NODE and not is_serving):
            return [_no_quorum(voters, silent, joining, now_ms)]
    if leader_id != NO_NODE and not is_serving:
        who = f"the controller, broker {leader_id}"
        text = f"this broker waits until {who}, takes it into service"
        return [Problem("waits_for_controller", text)]
    return []


def _has_been_silent(silence: Silence | None, now_ms: int) -> bool:
    return silence is not None and now_ms - silence.since_ms >= LEADER_SILENT_MS


def _is_silent(silence: Silence | None, is_serving: bool) -> bool:
    # Voters that are not the leader send each other no requests, so a serving broker ignores a
    # voter that it never reached.
    return silence is not None and not (is_serving and silence.end is None)


def _no_quorum(voters: list[int], silent: list[int], joining: ClusterJoin, now_ms: int) -> Problem:
    named = f"{majority_of(len(voters))} of the voters {listed(sorted(voters))}"
    if not silent:
        return Problem("no_quorum", f"no controller: {named} will elect one soon")
    missing = _each(silent, joining.peers, now_ms)
    text = f"no controller: this broker waits for {named}: {missing}"
    moved = [one for one in joining.moves.others if one.node_id in silent]
    if moved:
        text += (
            f". Brokers {listed(moved)} have new addresses in the configuration of this broker. If "
            "they still run at their old addresses, restart them with the new configuration, or "
            "start this broker with their configuration"
        )
    return Problem("no_quorum", text)


def _each(node_ids: Iterable[int], peers: Peers, now_ms: int) -> str:
    return ", ".join(_of_node(one, peers, now_ms) for one in node_ids)


def _of_node(node_id: int, peers: Peers, now_ms: int) -> str:
    """Return a text such as `2 at 127.0.0.1:29093 refuses connections (for 12 s)`.

    For a node that answers, the text is only its id and address.
    """
    address = peers.address_of(node_id)
    where = f"{node_id}" if address is None else f"{node_id} at {address.host}:{address.port}"
    silence = peers.silence_of(node_id)
    return where if silence is None else f"{where} {_how(silence, now_ms)}"


def _how(silence: Silence, now_ms: int) -> str:
    said = (
        "has not been reached"
        if silence.end is None
        else _WORDS.get(silence.end, "gives no answer")
    )
    return f"{said} (for {max(now_ms - silence.since_ms, 0) // 1000} s)"


def clock_text(wrong: WrongClock, brokers: Mapping[int, BrokerImage]) -> str:
    """Return the text for a broker whose clock differs from those of the others."""
    broker = brokers.get(wrong.node_id)
    address = None if broker is None else broker.listeners.get(BROKER_LISTENER)
    where = "" if address is None else f" on {address[0]}"
    direction = "ahead of" if wrong.ahead_ms > 0 else "behind"
    others = "the clock of the only other broker" if wrong.is_unsure else "the others' clocks"
    text = (
        f"the clock of broker {wrong.node_id}{where} is {abs(wrong.ahead_ms) // 1000} s {direction}"
        f" {others} (limit: {CLOCK_LIMIT_MS // 1000} s): correct it there, and keep all hosts"
        " together with NTP"
    )
    return f"{text}. The other clock can be the wrong one" if wrong.is_unsure else text
