"""An expression that raises on a line is NULL for that line: Catalyst's TryEval under a name.

Floor: pure. Spark's SQL has no function for it; `java/Functions.java` gives a session one.
"""

FUNCTION = "millrace_try"


def attempt(sql: str) -> str:
    """The expression, NULL where evaluating it raises an exception."""
    return f"{FUNCTION}({sql})"
