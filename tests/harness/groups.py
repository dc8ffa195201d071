"""Groups of tests that run in one worker process, because they share something that starts slowly.

xdist's own groups have no effect with pytest 9.2, because xdist changes the ids of tests, and
pytest no longer allows that. Nothing reports it. So `group_of` finds the group from a test's id
alone.
"""

from xdist.scheduler import LoadScopeScheduling

AT_WORK = frozenset(f"tests/e2e/test_{name}.py" for name in ("bad_lines", "lag_page", "up_counts"))
"""Modules whose tests examine one running mill (the fixture `mill_at_work`)."""

STREAM = "tests/interop/test_stream_"
"""Modules that share one Spark session start with this."""


def group_of(nodeid: str) -> str:
    """Return the group of a test: its module, or the name that its module shares with others."""
    module = nodeid.partition("::")[0]
    if module in AT_WORK:
        return "the mill at work"
    return "the session of Spark" if module.startswith(STREAM) else module


class GroupScheduling(LoadScopeScheduling):  # type: ignore[misc]  # xdist has no types
    """Gives a worker process one group after the other, in the order of the modules' paths."""

    def _split_scope(self, nodeid: str) -> str:
        return group_of(nodeid)
