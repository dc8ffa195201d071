"""Measure our broker and Apache Kafka alternately, one row of the benchmark table at a time."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from bench import broker_cases as cases
from bench import librdkafka
from bench.beside import Row
from bench.measurement import Figures, Measurement, Peer, Run
from bench.report import note
from bench.servers import FLUSH, Server
from bench.session import Bench

KEPT_TOPIC = "kept"
SYNCED = "with an fsync for each append"

Measure = Callable[[], Figures]


@dataclass(frozen=True, slots=True)
class Beside:
    """The peer's side of a row: its name, and the functions that measure it."""

    name: str
    plain: Measure
    synced: Measure | None = None
    """Measures the peer with an fsync for each append, for rows that compare it with our
    `flush=ack`."""


class Turns:
    """Measures the rows of a part on servers that already run."""

    def __init__(self, part: str, bench: Bench, ours: Server, peer: Server | None) -> None:
        self._part = part
        self._bench = bench
        self._ours = ours
        self._peer = peer
        self._peer_name = None if peer is None else peer.name
        self.all = [ours] if peer is None else [ours, peer]

    def flushed(self, row: Row, case: cases.Case) -> Iterator[Measurement]:
        """Measure a row with both kinds of flushing. The peer's runs are between ours."""
        measures = {kind: partial(case, self._ours, settings) for kind, settings in FLUSH.items()}
        beside = None
        if (peer := self._peer) is not None:
            synced = partial(case, peer, FLUSH["ack"]) if row.is_peer_synced else None
            beside = Beside(peer.name, partial(case, peer, {}), synced)
        return by_flush(self._part, self._bench, row, measures, beside)

    def plain(self, row: Row, case: cases.Case) -> Measurement:
        """Measure a row that flushing does not affect."""
        rounds = self._bench.in_rounds(row.work, [partial(case, one, {}) for one in self.all])
        return self._measurement(row, rounds.runs, rounds.discarded)

    def once(self, row: Row, case: cases.Case) -> Measurement:
        """Measure a row only once, because its result depends on all rows before it."""
        note(row.work)
        return self._measurement(
            row, [[self._bench.once(partial(case, one, {}))] for one in self.all]
        )

    def warm_up(self, count: int) -> None:
        """Produce records, so that memory, page cache and the peer's compiler settle before a
        measurement.

        The records stay, so that a later measurement of memory is of a broker with data.
        """
        for one in self.all:
            note(f"warming up {one.name}")
            one.topics.create(KEPT_TOPIC, cases.PARTITIONS, FLUSH["interval"])
            acks = one.replication.acks
            librdkafka.produce(one.bootstrap, KEPT_TOPIC, [bytes(200)], count, acks)
            one.record_count += count
            cases.requests(self._bench, 10, 5)(one, FLUSH["interval"])
            cases.requests(self._bench, 1, 1)(one, FLUSH["interval"])
            cases.consume(KEPT_TOPIC, count // 10, 200)(one, {})

    def _measurement(
        self, row: Row, runs: Sequence[Sequence[Run]], discarded: int = 0
    ) -> Measurement:
        peer = None if self._peer_name is None else Peer(self._peer_name, runs[1])
        return Measurement(self._part, row.work, runs[0], peer, row.goals, discarded)


def by_flush(
    part: str, bench: Bench, row: Row, ours: Mapping[str, Measure], beside: Beside | None
) -> Iterator[Measurement]:
    """Measure our broker with each kind of flushing. If there is a peer, its runs are between
    ours."""
    measures = list(ours.values())
    if beside is not None:
        measures.insert(1, beside.plain)
        if beside.synced is not None:
            measures.append(beside.synced)
    rounds = bench.in_rounds(row.work, measures)
    runs = list(rounds.runs)
    peers: dict[str, Peer] = {}
    if beside is not None:
        peers = dict.fromkeys(ours, Peer(beside.name, runs.pop(1)))
        if beside.synced is not None:
            peers["ack"] = Peer(f"{beside.name}, {SYNCED}", runs.pop())
    for kind, found in zip(ours, runs, strict=True):
        goals = row.goals_for(kind)
        yield Measurement(part, row.case(kind), found, peers.get(kind), goals, rounds.discarded)
