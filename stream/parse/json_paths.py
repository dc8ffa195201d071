"""SQL that reads all declared json paths of a line by a single call of a function.

This module is pure and needs no JVM. `java/JsonTexts.java` parses a line once for all paths. The
text at a path does not depend on the other paths, so adding a metric never changes the counts of
another.
"""

import json
from collections.abc import Sequence

from stream.config.expression import quote_text

Steps = tuple[str | int, ...]


def json_texts(line: str, paths: Sequence[Steps]) -> str:
    """Return SQL for the array of the texts at some paths; NULL if the line is not a JSON
    object."""
    return f"millrace_json({line}, {quote_text(json.dumps([list(path) for path in paths]))})"
