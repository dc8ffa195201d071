"""Changes of the cluster in words: what is under way, and what an operator must do about it.

This module is pure. The page, the alerts, the API, `millrace status` and `doctor` show the same
sentences. The page changes nothing itself, so each sentence comes with the command to type.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from monitor.state.moves import MoveView, by_topic, sum_of
from monitor.state.placement import Skew, Spread, doubled_racks, skew_of, usable_brokers
from monitor.state.snapshot import BrokerView, Snapshot, TopicView
from monitor.views import render
from protocol.reassignment import FOLLOWER_LIST, FOLLOWER_RATE, LEADER_LIST, LEADER_RATE

STANDS_MS = 300_000
"""The time without a copied byte after which a reassignment counts as stalled."""

GONE_MS = 600_000
"""The time after which a broker that is away and has replicas is reported."""

CORDON_KEY = "cordoned.log.dirs"
SET_AT_RUN_TIME = "DYNAMIC_TOPIC_CONFIG"
VOTERS_MIN = 3
GROW = "three voters, and three replicas of every topic: ./millrace cluster grow"
ADD_VOTER = "for a broker N that does not vote: ./millrace broker add N --voter"


@dataclass(frozen=True, slots=True)
class ClusterOperation:
    """A change under way.

    `commands` are pairs: the effect of a command in words, and the command.
    """

    kind: str
    text: str
    commands: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Advice:
    """Something that must be done. `text` is a sentence without its full stop."""

    code: str
    subject: str
    text: str
    remedy: str


def operations_of(snapshot: Snapshot) -> list[ClusterOperation]:
    """Return the changes under way."""
    return [
        *_moves(snapshot.moves),
        *(_leaving(one) for one in snapshot.brokers if one.leaving is not None),
        *_turns(snapshot),
        *_upgrade(snapshot),
    ]


def _moves(moves: Sequence[MoveView]) -> Iterator[ClusterOperation]:
    if not moves:
        return
    total = sum_of(moves)
    moving = f"{render.counted(total.count, 'partition')} {'moves' if total.count == 1 else 'move'}"
    waiting = []
    if total.queued:
        waiting.append(f"{total.queued} {'waits' if total.queued == 1 else 'wait'} in a queue")
    if total.standing:
        waiting.append(f"{total.standing} {'stands' if total.standing == 1 else 'stand'}")
    at_least = "at least " if total.unknown else ""
    text = f"{', '.join([moving, *waiting])}; {at_least}{render.size(total.to_go)} to copy"
    if total.unknown == total.count:
        text = f"{', '.join([moving, *waiting])}; the bytes to copy are unknown"
    elif total.rate is not None:
        text += f" at {render.size(total.rate)}/s"
    if total.eta_s is not None:
        text += f", about {render.duration(total.eta_s * 1_000)} left"
    shows, ends = "./millrace reassign list", "./millrace reassign cancel --all"
    yield ClusterOperation("moves", text, (("shows them", shows), ("ends them", ends)))


def leaving_text(broker: BrokerView) -> str:
    """Return how much is left on a cordoned broker; empty if it is not cordoned."""
    leaving = broker.leaving
    if leaving is None:
        return ""
    size = "" if leaving.size_bytes is None else f", {render.size(leaving.size_bytes)}"
    if not leaving.left:
        return "cordoned, and nothing is left on it"
    if leaving.is_emptied:
        return f"leaves: {leaving.left} of {leaving.most} partitions are left on it{size}"
    return (
        f"cordoned: it gets no new replicas, and {render.counted(leaving.left, 'partition')} "
        f"{'stays' if leaving.left == 1 else 'stay'} on it{size}"
    )


def _leaving(broker: BrokerView) -> ClusterOperation:
    remove = f"./millrace broker remove {broker.node_id}"
    text = leaving_text(broker)
    return ClusterOperation(
        "leaving",
        f"Broker {broker.node_id} {'is ' if text.startswith('cordoned') else ''}{text}",
        (
            ("empties and removes it", remove),
            ("takes that back", f"{remove} --abort")
            if broker.leaving is not None and broker.leaving.is_emptied
            else ("ends the cordon", _unset("broker", broker.node_id, [CORDON_KEY])),
        ),
    )


def _turns(snapshot: Snapshot) -> Iterator[ClusterOperation]:
    if snapshot.round_ended:
        yield ClusterOperation(
            "restart", snapshot.round_ended, (("continues", "./millrace restart --rolling"),)
        )
        return
    for part in snapshot.parts:
        if part.turn is not None:
            yield ClusterOperation(
                "restart", f"{part.name} {part.turn}", (("shows it", "./millrace status --watch"),)
            )


def _upgrade(snapshot: Snapshot) -> Iterator[ClusterOperation]:
    levels = level_behind(snapshot)
    if levels is not None:
        finalised, supported = levels
        yield ClusterOperation(
            "upgrade",
            f"All brokers support level {supported} of the metadata log, and the cluster is at "
            f"{finalised}; the way back to the earlier version is open",
            (("ends the upgrade", "./millrace upgrade finalize"),),
        )


def level_behind(snapshot: Snapshot) -> tuple[int, int] | None:
    """Return the level of the cluster and the newest that all brokers support, if that is later;
    None if it is not, or if a broker does not name its levels."""
    supported = [one.facts.supported for one in snapshot.brokers]
    finalised = [one.facts.finalised for one in snapshot.brokers if one.facts.finalised is not None]
    newest = [one[1] for one in supported if one is not None]
    if not finalised or len(newest) != len(supported) or min(newest) <= max(finalised):
        return None
    return max(finalised), min(newest)


def behind_ms(snapshot: Snapshot) -> float | None:
    """Return for how long the brokers have supported a later level than the cluster's, in ms.

    The last broker to start began then. Return 0 if no later level is supported, and None if no
    start is known.
    """
    if level_behind(snapshot) is None:
        return 0.0
    starts = [one.facts.started_at_ms for one in snapshot.brokers]
    known = [one for one in starts if one is not None]
    return float(snapshot.taken_at_ms - max(known)) if known else None


def move_text(move: MoveView) -> str:
    """Return when a reassignment can be done, or why it does not advance."""
    if move.waits:
        return move.waits
    if move.is_endless and move.writes is not None:
        return f"never at this rate: more than {render.size(move.writes)}/s is needed"
    if not move.is_measured:
        return "unknown: the brokers of this cluster do not report sizes"
    if move.eta_s is None:
        return "copies; the time is not measured yet"
    return f"about {render.duration(move.eta_s * 1_000)} left"


def advice_of(snapshot: Snapshot) -> list[Advice]:
    """Return what an operator must do, in a fixed order."""
    return [
        *_standing(snapshot),
        *(no_room(one) for one in snapshot.brokers if one.facts.is_out_of_room),
        *throttles_left(snapshot),
        *(racks_doubled(topic, count) for topic, count in doubled_racks(snapshot).items()),
        *_voters(snapshot),
        *_levels(snapshot),
        *_gone(snapshot),
        *_uneven(snapshot),
    ]


def still_ms(move: MoveView, now_ms: int) -> float | None:
    """Return for how long a reassignment has not advanced, in ms; 0 while it waits in a queue, and
    None if nothing reports its bytes."""
    if move.is_queued:
        return 0.0
    return float(now_ms - move.still_since_ms) if move.is_measured else None


def standing_text(moves: Sequence[MoveView]) -> str:
    """Return the sentence about stalled reassignments of one topic; empty if there are none."""
    if not moves:
        return ""
    why = moves[0].waits or "no byte comes"
    if len(moves) == 1:
        return f"the move of {moves[0].name} stands: {why}"
    number, first = render.number(len(moves)), moves[0]
    return f"{number} moves of {first.topic} stand, such as {first.name}: {why}"


def _standing(snapshot: Snapshot) -> Iterator[Advice]:
    standing = (
        one for one in snapshot.moves if (still_ms(one, snapshot.taken_at_ms) or 0) > STANDS_MS
    )
    for topic, moves in by_topic(standing).items():
        yield Advice(
            "move_stands", topic, standing_text(moves),
            "remove the cause, or end the move: ./millrace reassign cancel",
        )  # fmt: skip


def no_room(broker: BrokerView) -> Advice:
    """Return the advice about a broker whose disk has no room for copies."""
    return Advice(
        "no_room_to_copy", f"broker-{broker.node_id}",
        f"the disk of broker {broker.node_id} is nearly full, so copies to it pause",
        "free some space there, or cancel the moves to it: ./millrace reassign cancel",
    )  # fmt: skip


def throttles_left(snapshot: Snapshot) -> Iterator[Advice]:
    """Yield the throttles that were set at run time, if nothing moves that they could limit."""
    if snapshot.moves:
        return
    for broker in snapshot.brokers:
        rates = zip(
            (LEADER_RATE, FOLLOWER_RATE),
            (broker.facts.leader_rate, broker.facts.follower_rate),
            strict=True,
        )
        known = {key: rate for key, rate in rates if rate is not None}
        if known:
            rate = render.size(min(known.values()))
            yield Advice(
                "throttle_left", f"broker-{broker.node_id}",
                f"broker {broker.node_id} limits copies to {rate}/s, and no partition moves",
                _unset("broker", broker.node_id, known),
            )  # fmt: skip
    for topic in snapshot.topics:
        if lists := _lists_of(topic):
            yield Advice(
                "throttle_left", topic.name,
                f"topic {topic.name} has a list of limited replicas, and no partition moves",
                _unset("topic", topic.name, lists),
            )  # fmt: skip


def _lists_of(topic: TopicView) -> list[str]:
    """Return the lists of limited replicas that were set for a topic at run time."""
    entries = {key: topic.config.get(key, (None, "")) for key in (LEADER_LIST, FOLLOWER_LIST)}
    return [key for key, (value, source) in entries.items() if value and source == SET_AT_RUN_TIME]


def _unset(kind: str, name: object, keys: Iterable[str]) -> str:
    """Return the command that takes settings back."""
    return " ".join([f"./millrace config set {kind} {name}", *(f"--delete {key}" for key in keys)])


def racks_doubled(topic: str, count: int) -> Advice:
    """Return the advice about partitions with two replicas in one rack."""
    what = f"{render.counted(count, 'partition')} of {topic}"
    return Advice(
        "racks_doubled", topic,
        f"{what} {'has' if count == 1 else 'have'} two replicas in one rack although another rack"
        " has none",
        f"./millrace reassign generate --topic {topic}, then ./millrace reassign execute",
    )  # fmt: skip


def voter_count(snapshot: Snapshot) -> int | None:
    """Return the number of voters of the quorum; None if the quorum is unknown."""
    if snapshot.quorum is None:
        return None
    return sum(one.role != "observer" for one in snapshot.quorum.replicas)


def two_voters() -> Advice:
    """Return the advice about a quorum without a spare voter."""
    return Advice(
        "two_voters", "quorum",
        "the quorum has two voters, so no controller can be elected when one of them fails",
        ADD_VOTER,
    )  # fmt: skip


def _voters(snapshot: Snapshot) -> Iterator[Advice]:
    count = voter_count(snapshot)
    if count == 2:
        yield two_voters()
    elif count == 1 and len(usable_brokers(snapshot)) >= VOTERS_MIN:
        yield Advice(
            "one_voter", "quorum",
            "one broker votes alone although several belong to the cluster, so all stop with it",
            GROW,
        )  # fmt: skip


def _levels(snapshot: Snapshot) -> Iterator[Advice]:
    levels = level_behind(snapshot)
    if levels is not None:
        yield level_not_finalised(*levels)


def level_not_finalised(finalised: int, supported: int) -> Advice:
    """Return the advice to end an upgrade."""
    return Advice(
        "level_not_finalised", "cluster",
        f"all brokers support level {supported} of the metadata log, and the cluster is at level"
        f" {finalised}",
        "when you need no way back: ./millrace upgrade finalize",
    )  # fmt: skip


def _gone(snapshot: Snapshot) -> Iterator[Advice]:
    for broker in snapshot.brokers:
        away_ms = snapshot.taken_at_ms - (broker.away_since_ms or snapshot.taken_at_ms)
        if not broker.alive and broker.replicas and away_ms >= GONE_MS:
            yield Advice(
                "broker_gone", f"broker-{broker.node_id}",
                f"broker {broker.node_id} has not answered for {render.duration(away_ms)} and still"
                f" has {render.counted(broker.replicas, 'replica')}",
                f"start it, or ./millrace broker remove {broker.node_id}",
            )  # fmt: skip


def _uneven(snapshot: Snapshot) -> Iterator[Advice]:
    skew = skew_of(snapshot)
    if skew is None or snapshot.moves or not skew.replicas.is_uneven:
        return
    yield Advice(
        "uneven", "cluster",
        f"brokers have {spread_text(skew.replicas)} replicas",
        "./millrace reassign generate shows the smallest plan that levels them",
    )  # fmt: skip


def spread_text(spread: Spread) -> str:
    """Return the least and the most that a broker has."""
    if spread.least == spread.most:
        return f"{spread.least} each"
    return f"{spread.least} to {spread.most}"


def skew_facts(snapshot: Snapshot) -> list[tuple[str, str]]:
    """Return labels and texts about the spread of replicas, leaders and racks."""
    skew: Skew | None = skew_of(snapshot)
    if skew is None:
        return []
    doubled = sum(doubled_racks(snapshot).values())
    racks = sorted({one.facts.rack for one in snapshot.brokers if one.facts.rack is not None})
    rule = f"rule broken: {render.counted(doubled, 'partition')}" if doubled else "rule kept"
    return [
        ("Replicas a broker", spread_text(skew.replicas)),
        ("Leaders a broker", spread_text(skew.leaders)),
        ("Racks", f"{len(racks)}, {rule}" if racks else "none"),
    ]
