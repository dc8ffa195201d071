"""Parses the time of a log line, in the format of each part.

Our parts write UTC. The database servers write the machine's local time, each in its own format.
This module knows the formats, so that lines of all parts can be sorted by time.
"""

import re
from datetime import UTC, datetime

_OURS = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z?")
_OF_SERVERS = (
    # MariaDB pads the hour with a blank.
    (re.compile(r"(\d{4}-\d\d-\d\d +\d{1,2}:\d\d:\d\d) "), "%Y-%m-%d %H:%M:%S"),
    (re.compile(r"\d+:[A-Z] (\d\d [A-Z][a-z]{2} \d{4} [\d:]{8}\.\d{3}) "), "%d %b %Y %H:%M:%S.%f"),
)


def moment_of(line: str) -> str:
    """Return the time in RFC 3339 and UTC, to the millisecond; empty for a line without a time."""
    if _OURS.match(line):
        return f"{line[:23]}Z"
    for pattern, form in _OF_SERVERS:
        if found := pattern.match(line):
            try:
                moment = datetime.strptime(" ".join(found[1].split()), form).astimezone(UTC)
            except ValueError:
                # The text has the form of a time but is not one.
                return ""
            return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return ""
