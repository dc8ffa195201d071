"""SQL that makes an expression NULL for a line on which it raises or exceeds a limit.

This module is pure. Spark's SQL has no function for this, so `java/Functions.java` adds two of them
to a session. Both wrap the expression in Catalyst's TryEval. Before that, `java/Exchange.java`
replaces functions that match patterns, and functions that can produce very long texts, by variants
with limits. In a user's expression, an integer overflow gives NULL too.
"""

FUNCTION = "millrace_try"
FUNCTION_OF_USER = "millrace_try_of_user"


def attempt(sql: str) -> str:
    """Return SQL that evaluates one of our own expressions, and yields NULL if it raises an
    exception.
    """
    return f"{FUNCTION}({sql})"


def attempt_of_user(sql: str) -> str:
    """Return SQL that evaluates a user's expression, and yields NULL if it raises an exception or
    overflows.
    """
    return f"{FUNCTION_OF_USER}({sql})"
