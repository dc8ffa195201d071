"""The page of functions, generated from the list that the stream uses to check expressions.

python -m tests.harness.functions_page    writes docs/reference/functions.md
"""

from itertools import groupby

from stream.config.functions import PAGE, known_functions
from tests.harness import ROOT

_HEAD = r"""# Functions in `where` and `value`

<!-- Made by `python -m tests.harness.functions_page` from stream/config/functions.txt. -->

`where` and `value` of a metric are SQL expressions over the columns of one line. They may use the
operators of Spark's SQL (`+ - * / % div`, `= <> < <= > >= <=>`, `AND OR NOT`, `||`, `& | ^ ~`,
`IN`, `BETWEEN`, `LIKE`, `RLIKE`, `IS NULL`, `CASE WHEN … THEN … ELSE … END`, `a[0]`) and the
functions below. Names have no case. A `key` is a column: declare what it needs under `columns`.

Functions over many lines (`sum`, `count`) are measures of a metric. Functions that depend on
anything but the line (`now`, `rand`) are refused, because a line must count the same whenever it
is read again.

**Text literals.** `'…'` and `"…"` are text. `\\` is one backslash, `\'` and `\"` are quotes, `\n`,
`\r`, `\t` and `\uXXXX` are characters. Before any other character a backslash stands for itself,
so you write a regular expression as it is: `path rlike '^/v\d+/'`. In `r'…'` every backslash
stands for itself. YAML reads escapes of its own in double quotes: put an expression in single
quotes, and double each single quote in it, or write it as a block (`where: >-`).

**Where a line does not fit.** An expression that raises an error on a line is NULL for it, and so
is a number that does not fit its type. A line whose `where` or `value` is NULL is not counted for
this metric; its reason is `expression_null:METRIC`.
"""


def functions_page() -> str:
    """Return the whole page."""
    text = [_HEAD]
    for group, functions in groupby(known_functions().values(), lambda one: one.group):
        text += [f"\n## {group}\n", "| function | returns | example | gives |", "|---|---|---|---|"]
        for one in functions:
            result = _code(one.result) if one.result else ""
            text.append(
                f"| {_code(one.call)} | {_cell(one.returns)} | {_code(one.example)} | {result} |"
            )
    return "\n".join(text) + "\n"


def _code(text: str) -> str:
    return f"`` {_cell(text)} ``" if "`" in text else f"`{_cell(text)}`"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    (ROOT / PAGE).write_text(functions_page(), encoding="utf-8")
