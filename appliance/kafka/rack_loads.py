"""Says which racks get more than an equal share of a topic's replicas. This module is pure."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from appliance.output import counted


def overloads(
    topic: str, partitions: Iterable[Sequence[int]], usable: Mapping[int, str | None]
) -> Iterator[str]:
    """Yield a sentence for each rack whose brokers get more than an equal share of a topic's
    replicas.

    `partitions` has the brokers of each partition, and `usable` the rack of each broker.
    """
    loads = Counter(one for members in partitions for one in members if one in usable)
    if not loads:
        return
    mean = sum(loads.values()) / len(usable)
    by_rack: dict[str | None, list[int]] = {}
    for broker, rack in usable.items():
        by_rack.setdefault(rack, []).append(broker)
    if len(by_rack) == 1:
        return
    for rack, brokers in by_rack.items():
        most = max(loads[one] for one in brokers)
        if most >= mean + 1 and len(brokers) < len(usable) / len(by_rack):
            yield (
                f"{topic}: {counted(most, 'replica')} on a broker of rack "
                f"{rack or 'without name'}, {mean:.1f} on average, because the rack has "
                f"{len(brokers)} of {len(usable)} brokers"
            )
