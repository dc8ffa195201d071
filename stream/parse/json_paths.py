"""Reads declared json paths with one function call that returns the text at each path.

Room: pure, no JVM. `java/JsonTexts.java` reads a line once, whatever the number of paths. The
result at a path does not depend on other paths, so a metric never changes another.
"""

import json
from collections.abc import Sequence

from stream.config.expression import quote_text

Steps = tuple[str | int, ...]


def json_texts(line: str, paths: Sequence[Steps]) -> str:
    """Return SQL for the texts at some paths, as an array; NULL unless the line is an object."""
    return f"millrace_json({line}, {quote_text(json.dumps([list(path) for path in paths]))})"
