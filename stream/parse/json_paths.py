"""Declared json paths as one function call that gives the text at each of them.

Floor: pure, no JVM. `java/JsonTexts.java` reads a line once, whatever the number of paths. What it
finds at a path is the same whether or not other paths exist, so a metric never changes another.
"""

import json
from collections.abc import Sequence

from stream.config.expression import quote_text

Steps = tuple[str | int, ...]


def json_texts(line: str, paths: Sequence[Steps]) -> str:
    """The texts of a line at some paths, as an array; NULL unless the line is one JSON object."""
    return f"millrace_json({line}, {quote_text(json.dumps([list(path) for path in paths]))})"
