"""Sentences that say which brokers a broker waits for, before it joins or without a quorum.

Room: node. Computed on demand, like the rest of the status.
"""

from __future__ import annotations

from collections.abc import Iterable, Sized

from broker.cluster.found import listed
from broker.cluster.metadata import Metadata
from broker.node.joining import ClusterJoin
from broker.sessions.peers import Peers, Silence
from broker.world import End
from protocol.status import Problem
from protocol.types import NO_NODE

_WORDS = {
    End.REFUSED: "refuses",
    End.TIMED_OUT: "gives no answer",
    End.UNREACHABLE: "cannot be reached",
    End.UNRESOLVED: "has a host name that cannot be resolved",
    End.EOF: "has closed the connection",
    End.RESET: "has closed the connection",
}
"""How the last link to a node ended."""


def waits(
    joining: ClusterJoin, metadata: Metadata | None, node_id: int, now_ms: int, *, is_serving: bool
) -> list[Problem]:
    """Return what keeps this broker of a cluster from working; empty if all is well.

    `now_ms` is monotonic. `metadata` is None before the broker has joined. A serving broker is not
    reported as waiting during a short election.
    """
    peers = joining.peers
    if metadata is None:
        missing = joining.birth.waits_for
        if not missing:
            return []
        text = (
            "a new cluster begins when all of its brokers are up; waits for "
            f"{_each(missing, peers, now_ms)}"
        )
        return [Problem("waits_for_brokers", text)]
    voters = [key.node_id for key in metadata.quorum.voters]
    if metadata.quorum.leader_id == NO_NODE:
        others = [one for one in voters if one != node_id]
        silent = [one for one in others if _is_silent(peers.silence_of(one), is_serving)]
        is_short = len(voters) - len(silent) < _majority(voters)
        return [_no_quorum(voters, silent, peers, now_ms)] if is_short or not is_serving else []
    if not is_serving:
        who = f"the controller, broker {metadata.quorum.leader_id}"
        return [Problem("waits_for_controller", f"waits for {who}, to take it into service")]
    return []


def _majority(voters: Sized) -> int:
    return len(voters) // 2 + 1


def _is_silent(silence: Silence | None, is_serving: bool) -> bool:
    # While there is a leader, followers have no requests for each other.
    return silence is not None and not (is_serving and silence.end is None)


def _no_quorum(voters: list[int], silent: list[int], peers: Peers, now_ms: int) -> Problem:
    named = f"{_majority(voters)} of the voters {listed(sorted(voters))}"
    if not silent:
        return Problem("no_quorum", f"no controller: {named} are about to elect one")
    return Problem("no_quorum", f"no controller: waits for {named}: {_each(silent, peers, now_ms)}")


def _each(node_ids: Iterable[int], peers: Peers, now_ms: int) -> str:
    return ", ".join(_of_node(one, peers, now_ms) for one in node_ids)


def _of_node(node_id: int, peers: Peers, now_ms: int) -> str:
    """Return a text such as `2 at 127.0.0.1:29093 refuses, for 12 s`; also for reachable nodes."""
    address = peers.address_of(node_id)
    where = f"{node_id}" if address is None else f"{node_id} at {address.host}:{address.port}"
    silence = peers.silence_of(node_id)
    return where if silence is None else f"{where} {_how(silence, now_ms)}"


def _how(silence: Silence, now_ms: int) -> str:
    said = "has not been reached" if silence.end is None else _WORDS.get(silence.end, "is silent")
    return f"{said}, for {max(now_ms - silence.since_ms, 0) // 1000} s"
