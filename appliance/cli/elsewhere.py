"""Commands that in containers are compose's to do, or belong into the container of a part.

The service `cli` has neither Spark nor a supervisor nor the secrets of other parts. Asked before a
command is loaded, for loading some of them needs Spark already.
"""

import os
import shlex
from collections.abc import Sequence
from importlib.util import find_spec
from itertools import pairwise

from appliance.cli import context
from appliance.output import CommandError, Exit

WITHOUT = {
    "backup": "in containers no part may stop another: docs/backup.md has what to do instead",
    "restore": "in containers each part has a volume: docs/backup.md has what to do instead",
}
"""What has nothing in its place."""

OF_COMPOSE = {
    "up": "up -d --wait",
    "down": "down",
    "restart": "restart",
    "start": "start",
    "stop": "stop",
}
"""What compose does to the whole mill, or to the part that is named."""

OF_ONE_PART = ("restart", "start", "stop")

OF_THE_STREAM: dict[tuple[str, ...], str] = {
    ("config", "check"): "",
    ("stream", "recount"): "",
    ("stream", "forget"): "",
    ("stream", "purge"): "",
    ("stream", "dry-run"): "-v ./watched:/mill/watched:ro ",
}
"""What needs Spark, or the right to write counts, and what the stream's container lacks for it."""


def refuse_elsewhere(words: Sequence[str]) -> None:
    """Raise CommandError, with what to type, for a command that is not done in this container."""
    if not context.in_containers():
        return
    text = _of_compose(words) or _of_a_part(words)
    if text is not None:
        raise CommandError(text, Exit.CONDITION)


def _of_compose(words: Sequence[str]) -> str | None:
    """Also of their help, for no option of theirs means anything there."""
    if words[0] not in OF_COMPOSE:
        return None
    typed = ["docker compose", OF_COMPOSE[words[0]]]
    if words[0] in OF_ONE_PART:
        pairs = pairwise(words)
        named = [
            word for before, word in pairs if before != "--timeout" and not word.startswith("-")
        ]
        typed += named[:1]
    return f"in containers compose does this: `{' '.join(typed)}`"


def _of_a_part(words: Sequence[str]) -> str | None:
    if {"-h", "--help"} & set(words):
        return None
    names = [word for word in words if not word.startswith("-")]
    if names[0] in WITHOUT:
        return WITHOUT[names[0]]
    typed = shlex.join(words)
    mount = OF_THE_STREAM.get(tuple(names[:2]))
    if mount is not None and "--quick" not in words and not _has_spark():
        return (
            "this belongs into the stream's container:"
            f" `docker compose run --rm {mount}stream {typed}`"
        )
    if names[:2] == ["collector", "once"] and not _has_positions():
        return (
            "this belongs into the collector's container: `docker compose stop collector`,"
            f" `docker compose run --rm collector {typed}`, `docker compose start collector`"
        )
    return None


def _has_spark() -> bool:
    return find_spec("pyspark") is not None


def _has_positions() -> bool:
    """Whether this is the container with the collector's data, which others cannot write."""
    return os.access(context.home().part_data("collector"), os.W_OK)
