"""Render the metrics of all groups as Prometheus text, a piece at a time.

This module is pure. A reader is one group in one partition. A large cluster has hundreds of
thousands of readers, with four lines each. The client library of Prometheus would make objects of
all lines before it sends the first one. This module keeps only the lines of one group and one
metric in memory.
"""

from collections.abc import Callable, Iterator

from monitor.state.resting_cells import CellNumbers, numbers_of
from monitor.state.snapshot import GroupView, Snapshot

Figure = Callable[[CellNumbers], float | None]


def _lag(one: CellNumbers) -> float | None:
    return one.lag


def _age(one: CellNumbers) -> float | None:
    return None if one.age_ms is None else one.age_ms / 1000


def _committed(one: CellNumbers) -> float | None:
    return one.committed_offset


def _lost(one: CellNumbers) -> float | None:
    return None if one.lag is None else one.lost


FAMILIES: tuple[tuple[str, str, Figure], ...] = (
    ("millrace_group_lag_offsets", "Offsets not yet read", _lag),
    ("millrace_group_lag_seconds", "Age of the oldest unread record", _age),
    ("millrace_group_committed_offset", "Next offset to be read", _committed),
    ("millrace_group_lost_offsets", "Offsets that retention deleted before they were read", _lost),
)


def group_metrics(snapshot: Snapshot) -> Iterator[str]:
    """Yield the metrics in pieces of text; leave out unknown values."""
    for name, text, figure in FAMILIES:
        yield f"# HELP {name} {text}\n# TYPE {name} gauge\n"
        for group in snapshot.groups:
            yield "".join(_lines(name, group, figure))


def _lines(name: str, group: GroupView, figure: Figure) -> Iterator[str]:
    labels = f'{name}{{group="{escaped(group.group_id)}",partition="'
    topics: dict[str, str] = {}
    for one in numbers_of(group.cells):
        value = figure(one)
        if value is None:
            continue
        topic, partition = one.row
        end = topics.get(topic)
        if end is None:
            end = topics[topic] = f'",topic="{escaped(topic)}"}} '
        yield f"{labels}{partition}{end}{float(value)}\n"


def escaped(label: str) -> str:
    """Return the value of a label with the escapes that it needs between quotes."""
    return label.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
