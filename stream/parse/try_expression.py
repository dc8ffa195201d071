"""Makes expressions NULL for a line on which they raise, take too long, or produce too much.

Room: pure. Spark's SQL has no such function; `java/Functions.java` adds two to a session. Both
wrap the expression in Catalyst's TryEval, after `java/Exchange.java` has replaced functions that
match patterns or produce texts of any length by variants with limits. In a user's expression, whole
numbers that do not fit are NULL too.
"""

FUNCTION = "millrace_try"
FUNCTION_OF_USER = "millrace_try_of_user"


def attempt(sql: str) -> str:
    """Return our own expression, NULL if evaluating it raises an exception."""
    return f"{FUNCTION}({sql})"


def attempt_of_user(sql: str) -> str:
    """Return the same for a user's expression."""
    return f"{FUNCTION_OF_USER}({sql})"
