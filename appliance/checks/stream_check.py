"""Let Spark check the SQL expressions of the configuration, each expression only once.

Everything that can be checked without a JVM is checked when the file is loaded. Only Spark can
check syntax and types, which takes seconds. So the hash of each expression that passed is stored in
`data/`.
"""

import hashlib
import json
import os
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from appliance.checks.startup import CheckLevel, spark_master
from appliance.config.document import Document
from appliance.config.faults import ConfigFaults, Path, key_text
from appliance.config.sound import FaultyConfig
from appliance.errors import Failure
from appliance.launch.run import settings_descriptor
from appliance.machine.files import write_atomically
from appliance.machine.processes import with_all_it_starts
from appliance.mill.settings import Mill, encode_settings, stream_check_settings
from appliance.supervisor.logs import end_of

TIMEOUT_S = 180.0
LINES_OF_LOG = 8
MEMORY = "checked-expressions"
"""The file in `data/` with the hashes of checked expressions.

This is the only file that commands write before the mill was started for the first time.
"""
STREAM_VERSION_FILES = (
    "stream/config/expression.py",
    "stream/config/metrics.py",
    "stream/config/patterns.py",
    "stream/config/sections.py",
    "stream/config/settings.py",
    "stream/parse/check.py",
    "stream/parse/pattern_check.py",
    "stream/plan_check.py",
)


class CheckFailed(Failure):
    """Raised when Spark could not check the expressions. The text says why."""


@dataclass(frozen=True, slots=True)
class SparkAnswer:
    """The notes of Spark on valid expressions.

    `was_asked` is False if the answer for all expressions was stored, so that Spark did not run.
    """

    was_asked: bool
    notes: tuple[str, ...] = ()


def check_expressions(mill: Mill, document: Document) -> SparkAnswer:
    """Check the stream's expressions. Return Spark's notes on patterns that can be slow.

    Raises ConfigFaults with everything that Spark rejects.
    """
    if not mill.config.stream.metrics:
        return SparkAnswer(was_asked=False)
    settings = stream_check_settings(mill)
    digest = _digest(mill, settings)
    known, *stored = _stored_answer(mill) or [""]
    if known == digest:
        return SparkAnswer(False, tuple(stored))
    notes = []
    for fault in _ask_spark(mill, settings):
        path: Path = tuple(fault["path"])
        if fault["is_note"]:
            line = document.mark_of(path).line
            notes.append(
                f"line {line}: {key_text(path)}: {fault['found']}; use {fault['expected']}"
            )
        else:
            document.add(path, str(fault["found"]), str(fault["expected"]))
    if document.faults:
        raise ConfigFaults(document.faults)
    # If the answer cannot be stored, on a full disk or in a read-only container, Spark is asked
    # again next time.
    with suppress(OSError):
        mill.home.data.mkdir(parents=True, exist_ok=True)
        text = "".join(f"{one}\n" for one in (digest, *notes))
        write_atomically(mill.home.data / MEMORY, text.encode())
    return SparkAnswer(True, tuple(notes))


def check_rest(mill: Mill, faulty: FaultyConfig) -> ConfigFaults:
    """Return the faults of a configuration, together with those that Spark finds in its inputs and
    metrics without faults.

    `mill` has only those inputs and metrics in its configuration. Raises CheckFailed.
    """
    rest = faulty.rest
    if rest is None:
        return faulty
    settings = stream_check_settings(mill)
    if _stored_answer(mill)[:1] == [_digest(mill, settings)]:
        # Spark has already accepted exactly these inputs and metrics.
        return faulty
    for fault in _ask_spark(mill, settings):
        if not fault["is_note"]:
            path = rest.path_in_file(tuple(fault["path"]))
            faulty.document.add(path, str(fault["found"]), str(fault["expected"]))
    return ConfigFaults(faulty.document.faults)


def _stored_answer(mill: Mill) -> list[str]:
    """Return the hash of the expressions that Spark accepted last, and its notes; empty if none."""
    memory = mill.home.data / MEMORY
    return memory.read_text().splitlines() if memory.exists() else []


def _digest(mill: Mill, settings: dict[str, Any]) -> str:
    digest = hashlib.sha256(json.dumps(settings["section"], sort_keys=True).encode())
    for name in STREAM_VERSION_FILES:
        path = mill.home.code / name
        digest.update(path.read_bytes() if path.exists() else b"")
    return digest.hexdigest()


def _ask_spark(mill: Mill, settings: dict[str, Any]) -> list[dict[str, Any]]:
    for check in spark_master(mill):
        if check.level is CheckLevel.FAILED:
            raise CheckFailed(str(check))
    descriptor = settings_descriptor(encode_settings(settings))
    try:
        with with_all_it_starts(
            [sys.executable, "-m", "stream", "--check", "--settings-fd", str(descriptor)],
            pass_fds=[descriptor],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=mill.home.folder,
            env={**os.environ, "PYTHONPATH": str(mill.home.code), "PYTHONSAFEPATH": "1"},
        ) as process:
            said, log = process.communicate(timeout=TIMEOUT_S)
    except subprocess.TimeoutExpired as error:
        raise CheckFailed(
            f"Spark did not finish its check of the metrics within {TIMEOUT_S:.0f} s; try again "
            "when the machine is less busy"
        ) from error
    finally:
        os.close(descriptor)
    try:
        faults = json.loads(said)
    except ValueError as error:
        end = end_of(log.decode(errors="replace"), LINES_OF_LOG)
        raise CheckFailed(f"Spark could not check the metrics:\n{end}") from error
    if not isinstance(faults, list):
        raise CheckFailed(
            "Spark has checked the metrics, but its answer is not valid; run the command again"
        )
    return faults
