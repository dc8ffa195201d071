"""Counters of long tests, printed at the end of the run also when it passes."""

LINES: list[str] = []
"""Lines for the terminal's summary, in the order in which they came."""


def tell(line: str) -> None:
    """Say a count that the reader of a passing run wants to see."""
    LINES.append(line)
    print(line)
