"""The failure of a simulation."""


class Violation(AssertionError):
    """An invariant does not hold."""
