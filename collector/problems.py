"""Describe the collector's current problems for the user, each with its remedy if there is one.

The module only reads the state of the agent.
"""

from collector.agent import Agent
from collector.committer import Committer
from collector.send.rights import denial_of, topic_denied
from protocol.client.errors import EntryRefused
from protocol.collector_report import FENCED
from protocol.status import Problem
from protocol.units import format_moment_ms

SILENT_MS = 5_000  # a problem is shown after this time without an acknowledgement
PLACES_MAX = 10  # how many problems of one kind are shown


def problems_of(agent: Agent) -> tuple[Problem, ...]:
    """Return all current problems."""
    found: list[Problem] = []

    def add(code: str, text: str | None) -> None:
        if text is not None:
            found.append(Problem(code, text))

    if agent.start_problem is not None:
        found.append(agent.start_problem)
    else:
        add("broker", brokers_away(agent.committer, agent.clock(), agent.brokers.refusal))
    add("rights", agent.reporting.problem)
    if agent.is_fenced:
        add(
            FENCED,
            "another collector has the same name (collector.instance), so this collector has ended",
        )
    for place, refusal in agent.committer.refused.items():
        if denial_of(refusal) is None:
            add("refused", f"{place}: {refusal}")
        else:
            add("rights", topic_denied(agent.brokers.user, place.topic, "write"))
    for topic, reason in list(agent.topic_maker.problems.items())[:PLACES_MAX]:
        add("topic", f"topic {topic} could not be created: {reason}; its files wait")
    for code, text in agent.positions.problems.items():
        add(code.split(" ")[0], text)
    add("config", None if agent.reloading is None else agent.reloading.problem)
    for path, text in list(agent.ingested.problems.items())[:PLACES_MAX]:
        add("ingested", f"{path}: {text}")
    for place_text in agent.lookout.last.problems[:PLACES_MAX]:
        add("unreadable", place_text)
    for path, text in list(agent.reader.refused.items())[:PLACES_MAX]:
        add(
            "unreadable",
            f"{path}: {text}; the file waits, because it may be a copy of a known file",
        )
    for path, text in agent.lookout.watch_problems.items():
        add("watch", f"{path}: {text}; changes are found by scans instead")
    return tuple(found)


def brokers_away(committer: Committer, now_ms: int, refusal: EntryRefused | None) -> str | None:
    """Return a message that lines wait for the brokers, with the time since when.

    `refusal` is the reason why no broker accepts a connection, if it is known. Return None if they
    have waited only a short time and the reason is unknown.
    """
    since_ms = committer.unsettled_since_ms
    if since_ms is None:
        return None
    reason = committer.unclear or refusal
    if reason is None and now_ms - since_ms <= SILENT_MS:
        return None
    why = "" if reason is None else f" ({reason})"
    since = format_moment_ms(since_ms)
    return f"no broker has acknowledged lines since {since}{why}; the lines wait in their files"
