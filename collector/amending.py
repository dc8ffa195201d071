"""Changes stored positions on request: forgets a file, or makes the next start read it again.

It works while the collector is stopped. It takes over the instance as a collector does, so that no
other process writes positions in the meantime. It commits all changed records in one transaction.
"""

import asyncio
import socket
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from collector.config.settings import CollectorSettings
from collector.identity.checkpoints import (
    Checkpoint,
    UnreadableCheckpoint,
    decode,
    encode,
    encode_key,
)
from collector.identity.discovery import plan
from collector.identity.files import Walker
from collector.identity.generation import EMPTY
from collector.identity.sightings import State
from collector.naming import is_meant
from collector.send.claims import Claim
from collector.send.positions import Records
from collector.send.producer import Brokers
from collector.send.rights import transactional_id_of
from collector.send.topic_access import START_TIMEOUT_MS
from collector.status import shown
from collector.text.fingerprint import FileId
from protocol.client.errors import ClientError
from protocol.errors import ApiError


class Amendment(StrEnum):
    """A change to the position record of a file."""

    FORGET = "forget"
    AGAIN = "again"


@dataclass(frozen=True, slots=True)
class Amended:
    """A generation that the user named.

    `refusal` says why it is not changed; None if it is changed.
    """

    checkpoint: Checkpoint
    refusal: str | None


def chosen(
    stored: Iterable[Checkpoint], present: Mapping[str, FileId], wanted: str, what: Amendment
) -> list[Amended]:
    """Return the generations that the user named, each with the reason if it cannot be changed.

    `present` are the paths that inputs match now. A file that exists is not forgotten, because it
    would then be read from its start. A missing file cannot be read again.
    """
    found = []
    for one in sorted(stored, key=lambda one: (one.path, one.at_ms)):
        if not is_meant(one.path, wanted) and not is_meant(one.first_path, wanted):
            continue
        is_there = present.get(one.path) == one.file and one.state is not State.DONE
        refusal = None
        if is_there and what is Amendment.FORGET:
            refusal = "the file still exists: use `collector again` to read it from its start"
        elif not is_there and what is Amendment.AGAIN:
            refusal = "the file is gone, or no input of the configuration matches it"
        elif what is Amendment.AGAIN and not one.fingerprint.position:
            refusal = "no line of the file has been sent yet, so nothing would be sent again"
        found.append(Amended(one, refusal))
    return found


def amended(instance: str, found: Iterable[Amended], what: Amendment, now_ms: int) -> Records:
    """Return the position records to write, by key. The value None deletes the record."""
    records: Records = {}
    for one in found:
        if one.refusal is None:
            key = encode_key(instance, one.checkpoint.generation)
            again = replace(
                one.checkpoint,
                fingerprint=EMPTY,
                lines=0,
                trail=(),
                archive=None,
                at_ms=now_ms,
                lost_possible=False,
                counts_again=True,
            )
            records[key] = None if what is Amendment.FORGET else encode(again)
    return records


async def _amend(
    settings: CollectorSettings,
    instance: str,
    wanted: str,
    what: Amendment,
    now_ms: int,
    *,
    execute: bool,
) -> dict[str, object]:
    brokers = Brokers(settings, transactional_id_of(instance) if execute else "millrace-collector")
    try:
        await brokers.reach()
        if execute:
            claim = Claim(uuid.uuid4().hex, 1)
            stored = await brokers.take_over(instance, claim, socket.gethostname(), None)
        else:
            stored = await brokers.read_positions(instance)
        scan = await asyncio.to_thread(Walker(plan(settings.section.inputs, settings.home)).scan)
        present = {seen.path: seen.file for seen in scan.seen}
        found = chosen(_decoded(stored.values), present, wanted, what)
        records = amended(instance, found, what, now_ms)
        if execute and records:
            brokers.begin()
            await brokers.send_positions(records)
            await brokers.commit(START_TIMEOUT_MS)
    finally:
        await brokers.close(START_TIMEOUT_MS)
    return {"executed": execute, "files": [_row(one) for one in found], "reason": None}


async def amend(
    settings: CollectorSettings,
    instance: str,
    wanted: str,
    what: Amendment,
    now_ms: int,
    *,
    execute: bool,
) -> dict[str, object]:
    """Change the records, or only show the change. Return a report of plain JSON values.

    `reason` in the report says why the cluster refused or did not answer; None if it answered.
    """
    try:
        return await _amend(settings, instance, wanted, what, now_ms, execute=execute)
    except (ClientError, ApiError) as error:
        return {"executed": False, "files": [], "reason": f"{settings.bootstrap_servers}: {error}"}


def _decoded(values: Mapping[str, bytes]) -> list[Checkpoint]:
    found = []
    for generation, value in values.items():
        try:
            found.append(decode(generation, value))
        except UnreadableCheckpoint:
            # Skip the record, because its path is unknown. `collector check` reports it.
            continue
    return found


def _row(one: Amended) -> dict[str, object]:
    known = one.checkpoint
    return {
        "path": shown(known.path),
        "generation": known.generation,
        "state": str(known.state),
        "topic": known.topic,
        "position": known.fingerprint.position,
        "lines": known.lines,
        "refusal": one.refusal,
    }
