"""Refuses commands that compose replaces in containers, or that need the container of a part.

The service `cli` has neither Spark nor a supervisor nor the secrets of other parts. This is checked
before a command is loaded, because loading some commands already needs Spark.
"""

import os
import shlex
from collections.abc import Sequence
from importlib.util import find_spec
from itertools import pairwise

from appliance.cli import context
from appliance.output import CommandError, Exit

WITHOUT = {
    "backup": "in containers no part can pause another: docs/backup.md says what to do instead",
    "restore": "in containers each part has a volume: docs/backup.md says what to do instead",
    "upgrade": "in containers compose restarts the parts: run `bin/compose-roll` on the host",
}
"""Commands that cannot be used in containers."""

ANYWHERE = ["upgrade", "finalize"]
"""The only subcommand of a command in `WITHOUT` that works in containers."""

DRY_RUN = "--dry-run"

OF_COMPOSE = {
    "up": "up -d --wait",
    "down": "down",
    "restart": "restart",
    "start": "start",
    "stop": "stop",
}
"""The command of `docker compose` that replaces each command, for the whole mill or for the named
part."""

OF_ONE_PART = ("restart", "start", "stop")

OF_THE_STREAM: dict[tuple[str, ...], str] = {
    ("config", "check"): "",
    ("stream", "recount"): "",
    ("stream", "forget"): "",
    ("stream", "purge"): "",
    ("stream", "dry-run"): "-v ./watched:/mill/watched:ro ",
}
"""Commands that need Spark or the right to write counts, and must run in the stream's container.

The value has the mounts that the stream's container needs in addition.
"""


def refuse_elsewhere(words: Sequence[str]) -> None:
    """Raise CommandError, which says what to type instead, if the command cannot run in this
    container."""
    if not context.in_containers():
        return
    text = _of_compose(words) or _of_a_part(words)
    if text is not None:
        raise CommandError(text, Exit.CONDITION)


def _of_compose(words: Sequence[str]) -> str | None:
    """Return the command to type instead; None if there is none.

    The result is the same with `--help`, because no option of the command applies in containers.
    """
    if words[0] not in OF_COMPOSE:
        return None
    typed = ["docker compose", OF_COMPOSE[words[0]]]
    if words[0] in OF_ONE_PART:
        pairs = pairwise(words)
        named = [
            word for before, word in pairs if before != "--timeout" and not word.startswith("-")
        ]
        typed += named[:1]
    return f"in containers, use compose instead: run `{' '.join(typed)}`"


def _of_a_part(words: Sequence[str]) -> str | None:
    if {"-h", "--help"} & set(words):
        return None
    names = [word for word in words if not word.startswith("-")]
    is_question = names[0] == "upgrade" and DRY_RUN in words
    if names[0] in WITHOUT and names[:2] != ANYWHERE and not is_question:
        return WITHOUT[names[0]]
    typed = shlex.join(words)
    mount = OF_THE_STREAM.get(tuple(names[:2]))
    if mount is not None and "--quick" not in words and not _has_spark():
        return (
            "this command needs the stream's container: run `docker compose run --rm "
            f"{mount}stream {typed}`"
        )
    if (names[0] == "cert" or names[:2] == ["enrol", "broker"]) and not _has_authority():
        return (
            "this command needs the container with the key of the CA: run"
            f" `{_in_init(words, names)}`"
        )
    if names[:2] == ["collector", "once"] and not _has_positions():
        return (
            "this command needs the collector's container: run `docker compose stop "
            f"collector`, `docker compose run --rm collector {typed}`, `docker compose "
            "start collector`"
        )
    return None


def _in_init(words: Sequence[str], names: Sequence[str]) -> str:
    """Return the command line for the container `init`. It sees no file of the host, so secret
    files go through its standard input and output. `names` are the words without options."""
    home, last = context.home(), names[2] if len(names) > 2 else None
    if names[:2] == ["cert", "install"]:
        return home.reads("cert install", last or "FILE")
    if names[:2] == ["cert", "renew"] and (part := _for_another_host(words)):
        return home.writes(f"cert renew --for {part}", f"{part}.cert")
    if names[:2] == ["enrol", "broker"]:
        return home.writes(f"enrol broker {last or 'N'}", f"broker-{last or 'N'}.join")
    return f"docker compose run --rm init {shlex.join(words)}"


def _for_another_host(words: Sequence[str]) -> str | None:
    """Return the broker of another host in the option `--for`; None if there is none."""
    from appliance.mill.parts import BROKER_PREFIX

    own = context.home().host_broker
    joined = (word.removeprefix("--for=") for word in words if word.startswith("--for="))
    named = next((after for before, after in pairwise(words) if before == "--for"), None)
    part = named or next(joined, "")
    is_broker = part.startswith(BROKER_PREFIX) and part != f"{BROKER_PREFIX}{own}"
    return part if own is not None and is_broker else None


def _has_authority() -> bool:
    """Return whether this container has the key of the CA. Only `init` has it."""
    return os.access(context.home().authority_key.parent, os.W_OK)


def _has_spark() -> bool:
    return find_spec("pyspark") is not None


def _has_positions() -> bool:
    """Return whether this container can write the collector's data. Other containers cannot."""
    return os.access(context.home().part_data("collector"), os.W_OK)
