"""Expressions that are NULL for a line on which they raise, take too long, or make too much.

Floor: pure. Spark's SQL has no function for it; `java/Functions.java` gives a session two. Both are
Catalyst's TryEval over an expression in which `java/Exchange.java` has put functions with limits in
the place of such as match patterns, or make texts of any length. Of an expression of a user's,
whole numbers that do not fit are NULL, too.
"""

FUNCTION = "millrace_try"
FUNCTION_OF_USER = "millrace_try_of_user"


def attempt(sql: str) -> str:
    """An expression of ours, NULL where evaluating it raises an exception."""
    return f"{FUNCTION}({sql})"


def attempt_of_user(sql: str) -> str:
    """As `attempt`, for an expression of a user's."""
    return f"{FUNCTION_OF_USER}({sql})"
