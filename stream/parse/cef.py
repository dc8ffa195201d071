"""Parses ArcSight's Common Event Format by SQL; `java/Cef.java` splits the lines."""

from stream.config.expression import quote_text
from stream.config.formats import Declared
from stream.parse.texts import ColumnSql, LineSql, Texts

# The columns of a line's header, in the order in which `java/Cef.java` returns them. Position 0 of
# its result is the text before the header, and the extension comes last.
_HEADER = ("version", "vendor", "product", "product_version", "event_class", "name", "severity")
_EXTENSION = len(_HEADER) + 1


def read_cef(texts: Texts) -> LineSql:
    """Return how to read a CEF input; declared columns are keys of the extension."""
    fields = texts.fields

    def text(column: Declared) -> str:
        key = quote_text(str(column.steps[0]))
        return f"millrace_cef_value({fields}[{_EXTENSION}], {key})"

    columns = {
        name: ColumnSql(f"nullif({fields}[{place}], '')") for place, name in enumerate(_HEADER, 1)
    }
    return LineSql(
        texts.in_two_steps(f"millrace_cef({texts.text})"),
        f"({fields} IS NOT NULL)",
        texts.time(text),
        columns | texts.declared(text),
    )
