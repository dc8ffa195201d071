"""Explains why no format fits some lines, and what the user can do.

This module is pure. Each function returns the reason and the remedy.
"""

import json
import re
from collections.abc import Sequence

from appliance.detect.judging import Fit

_BASE64 = re.compile(r"[A-Za-z0-9+/_-]{40,}={0,2}\Z")
_HEX_DUMP = re.compile(r"[0-9a-f]{6,16}:? +(?:(?:[0-9a-f]{2} +){4}|(?:[0-9a-f]{4} +){4})", re.I)
_ARRAY = re.compile(r"\[.*\]\Z", re.DOTALL)
_PAIR_OF_JSON = re.compile(r'\s+"[^"]*" *: ')
_CONTROLS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1a\x1c-\x1f\x7f\ufffd]")
CONTROLS_MAX = 0.02

OWN_FORMAT = (
    "describe the lines in configs/formats/NAME.yaml (configs/formats/README.md says how),"
    " or count them as they are with `format: raw`"
)
NOT_A_LOG = "leave it out of watched/, or out of the input with `exclude`"


def noise_of(lines: Sequence[str]) -> tuple[str, str] | None:
    """Return the reason and the remedy if the lines cannot be a log; None if they can."""
    there = [line for line in lines if line.strip()]
    if not there:
        return "the file has no lines", "run the command again when something is written to it"
    characters = sum(map(len, there))
    controls = sum(len(_CONTROLS.findall(line)) for line in there)
    if controls > CONTROLS_MAX * characters:
        return (
            "the file holds bytes that are no text",
            f"name its encoding with --encoding if it is text, or {NOT_A_LOG}",
        )
    if _most(_BASE64, there):
        return "the lines are base64 or another code", f"decode the file, or {NOT_A_LOG}"
    if _most(_ARRAY, there) and all(_is_array(line) for line in there[:20]):
        return (
            "each line is a JSON array, not an object",
            "write one object in each line, as `jq -c '.[]'` does",
        )
    if _most(_HEX_DUMP, there):
        return "the lines are a dump of bytes", NOT_A_LOG
    return None


def nothing_fits(lines: Sequence[str], fits: Sequence[Fit]) -> tuple[str, str]:
    """Return the reason why no format was found, and the remedy."""
    there = [line for line in lines if line.strip()]
    if there[0].strip() in ("{", "[") and any(_PAIR_OF_JSON.match(line) for line in there[:20]):
        return (
            "the file is one JSON document over several lines",
            "write one object in each line, as `jq -c .` or `jq -c '.[]'` does",
        )
    if fits:
        best = fits[0]
        return (
            f"too few lines have a format: {best.share:.0%} are {best.format.name}",
            OWN_FORMAT,
        )
    return "no line has a known format, and most lines have no time", OWN_FORMAT


def _most(pattern: re.Pattern[str], lines: Sequence[str]) -> bool:
    return sum(pattern.match(line.strip()) is not None for line in lines) > 0.7 * len(lines)


def _is_array(line: str) -> bool:
    try:
        return isinstance(json.loads(line), list)
    except (ValueError, RecursionError):
        return False
