"""The table that compares our broker with Apache Kafka, as Markdown for `docs/measured.md`.

This module is pure. Each kind of work has one row with three medians: the peer's, ours with
`flush=interval` (as Kafka does), and ours with `flush=ack` (our default). Our medians have their
ratio to the peer beside them. The last column has the goals and marks the goals that were missed. A
ratio is computed for each round, because the machine's speed changes over time. So a ratio in the
table differs from the ratio of the two medians. Work that flushing does not affect was measured
once.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bench.figures import Spread, text_of
from bench.measurement import Goal, Measurement


@dataclass(frozen=True, slots=True)
class Row:
    """One kind of work: the figures in its row, their labels, and their goals."""

    work: str
    shown: Mapping[str, str]
    """The label of each figure for readers, which contains its unit."""

    goals: Sequence[Goal] = ()
    """The goals with `flush=interval`. If flushing does not affect the work, these are all
    goals."""

    ack_goals: Sequence[Goal] = ()
    is_flushed: bool = True
    """True if the work is measured with both kinds of flushing."""

    is_peer_synced: bool = False
    """True if `flush=ack` is compared with a peer that also syncs each append."""

    def case(self, flush: str) -> str:
        """Return the name of the case in the JSON lines."""
        return f"{self.work}, flush={flush}" if self.is_flushed else self.work

    def goals_for(self, flush: str) -> Sequence[Goal]:
        """Return the goals of the case with this kind of flushing."""
        return self.ack_goals if flush == "ack" else self.goals


def markdown(rows: Sequence[Row], found: Sequence[Measurement], where: str) -> list[str]:
    """Return the table's lines; empty if no peer was measured. `where` is the text for the table's
    head that names the number of nodes."""
    by_case = {one.case: one for one in found}
    peer = next((one.peer.name for one in found if one.peer is not None), None)
    if peer is None:
        return []
    lines = [
        f"| work, {where} | {peer} | ours, `flush=interval` | ours, `flush=ack` | goal |",
        "|---|---|---|---|---|",
    ]
    for row in rows:
        interval = by_case.get(row.case("interval"))
        ack = by_case.get(row.case("ack")) if row.is_flushed else None
        if interval is None:
            continue
        cells = [
            f"{row.work}: {', '.join(row.shown.values())}",
            _peers(row, interval, ack),
            _ours(row, interval),
            _ours(row, ack) if ack is not None else "",
            _goals(row, interval, ack),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def ratio_text(ratio: Spread) -> str:
    """Return the text with our ratio to the peer: the median over all rounds, and the range."""
    text = f"{ratio.median:.2f}×"
    low, high = f"{ratio.minimum:.2f}", f"{ratio.maximum:.2f}"
    return text if low == high else f"{text}, {low}–{high}"


def _peers(row: Row, interval: Measurement, ack: Measurement | None) -> str:
    text = _medians(row, interval.peer_figures)
    if row.is_peer_synced and ack is not None:
        text += f"; with fsync {_medians(row, ack.peer_figures)}"
    return text


def _medians(row: Row, figures: Mapping[str, Spread]) -> str:
    return "; ".join(text_of(figures[name].median) for name in row.shown if name in figures)


def _ours(row: Row, measurement: Measurement) -> str:
    ratios, cells = measurement.ratios, []
    for name in row.shown:
        if name in measurement.figures:
            ratio = f" ({ratio_text(ratios[name])})" if name in ratios else ""
            cells.append(text_of(measurement.figures[name].median) + ratio)
    return "; ".join(cells)


def _goals(row: Row, *measurements: Measurement | None) -> str:
    cells = []
    for measurement in measurements:
        for goal, _, is_met in measurement.judged() if measurement is not None else ():
            unit = row.shown.get(goal.figure, goal.figure)
            text = f"{unit} {goal.text}{'×' if goal.of == 'ratio' else ''}"
            cells.append(text if is_met else f"**missed:** {text}")
    return "; ".join(cells)
