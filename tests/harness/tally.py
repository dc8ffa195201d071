"""Counters of long tests, printed at the end of a run even if it passes."""

LINES: list[str] = []
"""Lines for the terminal's summary, in the order in which tests added them."""


def tell(line: str) -> None:
    """Add a line of counters, and print it."""
    LINES.append(line)
    print(line)
