"""Decides from when on MySQL deletes windows that are older than their `keep`.

This module is pure. A deletion cannot be undone, so it is announced. A `keep` that would delete
existing windows takes effect a week after it was first seen (decision 0098). Until then the sinks
merge as if these windows were kept forever, so late lines are still added to them. A user who
changes the `keep` to `forever` within that week has lost nothing. A `keep` that deletes nothing
takes effect at once.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from sinks.rows import ALL_WINDOW_S, MetricDefinition, size_text

NOTICE_S = 7 * 86_400

Place = tuple[str, int]
"""A metric and a window size in seconds."""


@dataclass(frozen=True, slots=True)
class Term:
    """A deletion term: from `from_s` on, windows of this metric and size are deleted once they are
    older than `keep_s`.

    `cells` is the number of cells that were older than `keep_s` when the sinks were last opened.
    """

    metric: str
    size_s: int
    keep_s: int
    from_s: int
    cells: int

    @property
    def place(self) -> Place:
        """The metric and window size to which the term applies."""
        return self.metric, self.size_s


def limits(definitions: Iterable[MetricDefinition]) -> Iterator[tuple[Place, int]]:
    """Yield each metric and window size that is not kept forever, and its `keep` in seconds."""
    for definition in definitions:
        for size_s in definition.windows_s:
            keep_s = definition.keep_mysql_s.get(size_s)
            if size_s != ALL_WINDOW_S and keep_s is not None:
                yield (definition.name, size_s), keep_s


def words(term: Term) -> str:
    """Return the notice of a future deletion, as one sentence."""
    return _sentence(term, f"are deleted from {_moment(term)} on")


def foreseen_words(term: Term) -> str:
    """Return the notice for a `keep` that no driver has applied yet."""
    when = f"would be deleted a week after it is applied, from {_moment(term)} on"
    return _sentence(term, when)


def unasked_words(place: Place, before_s: int | None, keep_s: int) -> str:
    """Return the notice for a shorter `keep` if MySQL could not be asked about the cells."""
    metric, size_s = place
    before = "forever" if before_s is None else size_text(before_s)
    return (
        f"{metric}: MySQL's {size_text(size_s)} windows were kept {before}; what is older than"
        f" the new `keep` ({size_text(keep_s)}) would be deleted a week after it is applied (MySQL"
        " was not asked how much that is); `keep: {mysql: forever}` keeps them"
    )


def _sentence(term: Term, when: str) -> str:
    return (
        f"{term.metric}: {term.cells:,} cells of MySQL's {size_text(term.size_s)} windows are older"
        f" than `keep` ({size_text(term.keep_s)}) and {when}; `keep: {{mysql: forever}}` keeps them"
    )


def _moment(term: Term) -> str:
    return f"{datetime.fromtimestamp(term.from_s, UTC):%Y-%m-%d %H:%M} UTC"


def judge(place: Place, keep_s: int, known: Term | None, cells: int, now_s: int) -> Term:
    """Return the deletion term for the windows of one metric and size.

    `known` is the stored term, or None. `cells` is the number of cells older than `keep_s`.
    """
    if known is not None and known.keep_s <= keep_s:
        # The stored term deletes everything that this one deletes, so no new notice is needed.
        from_s = known.from_s
    else:
        from_s = now_s + NOTICE_S if cells else now_s
    return Term(*place, keep_s, from_s, cells)


def waiting(
    terms: Mapping[Place, Term], definitions: Iterable[MetricDefinition], now_s: int
) -> tuple[Term, ...]:
    """Return the deletion terms of the configured metrics that are not in effect yet.

    Nothing is deleted from a metric that is not configured, so its terms are left out.
    """
    mine = {place for place, _ in limits(definitions)}
    return tuple(term for place, term in terms.items() if place in mine and term.from_s > now_s)


def shortened(
    before: Iterable[MetricDefinition], after: Iterable[MetricDefinition]
) -> Iterator[tuple[Place, int | None, int]]:
    """Yield each metric and size whose `keep` becomes shorter, with the old and the new `keep`.

    An old `keep` of None means that the windows were kept forever.
    """
    known = {definition.name: definition for definition in before}
    for (name, size_s), keep_s in limits(after):
        if name not in known or size_s not in known[name].windows_s:
            continue
        before_s = known[name].keep_mysql_s.get(size_s)
        if before_s is None or keep_s < before_s:
            yield (name, size_s), before_s, keep_s


def in_force(
    definitions: Sequence[MetricDefinition], terms: Mapping[Place, Term], now_s: int
) -> dict[str, MetricDefinition]:
    """Return definitions by name, with the `keep` that is in effect now.

    While no deletion term is in effect for a size, its windows are kept forever.
    """
    found = {}
    for definition in definitions:
        kept: dict[int, int | None] = {}
        for size_s in definition.windows_s:
            term = terms.get((definition.name, size_s))
            begun = term is not None and term.from_s <= now_s
            kept[size_s] = definition.keep_mysql_s.get(size_s) if begun else None
        found[definition.name] = replace(definition, keep_mysql_s=kept)
    return found
