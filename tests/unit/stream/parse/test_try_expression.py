"""`millrace_try(…)` uses only functions that our Java code registers in a session."""

import re

from stream.parse.try_expression import attempt, attempt_of_user
from stream.spark.java_classes import SOURCES

REGISTERED = re.compile(r'add\(registry, "(\w+)", new Attempt\((true|false)\)\)')


def test_an_attempt_is_a_call_of_what_java_registers() -> None:
    registered = dict(REGISTERED.findall((SOURCES / "Functions.java").read_text()))
    names = {
        name: is_of_user
        for is_of_user, name in (
            ("false", attempt("x").removesuffix("(x)")),
            ("true", attempt_of_user("x").removesuffix("(x)")),
        )
    }
    assert registered == names
