"""The JSON definitions inside kafka-clients jars, which are Kafka's own, compared with our tables.

The jar of Spark's connector is part of the set-up. The jar of the Kafka version with which we
compare ourselves exists once a test has fetched it. Without both, only the comparison with
kafka-python's copy runs. Newer releases are not compared, because they rename fields whose bytes
stay the same (4.4: GenerationIdOrMemberEpoch).
"""

import json
import os
import re
import zipfile
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from protocol.wire.schema import Message
from tests.harness import ROOT
from tests.unit.protocol.definitions import assert_declared_alike, knows
from tests.unit.protocol.examples import kafkas_classes

FOLDERS = (
    Path(os.environ.get("MILLRACE_JARS", ROOT / ".cache" / "jars")),
    *sorted((ROOT / ".cache").glob("kafka-[0-9]*/lib")),
)
JARS = [jar for folder in FOLDERS for jar in sorted(folder.glob("kafka-clients-*.jar"))]

CLASSES = kafkas_classes()

# Kafka 4.0 renamed the message of key 74 and its fields.
NEWER_THAN_3 = {"ListConfigResourcesRequest", "ListConfigResourcesResponse"}


@cache
def definitions(jar: Path) -> dict[str, Any]:
    """Return every definition by the name of its message. Common structs are inserted where they
    are used."""
    found = {}
    with zipfile.ZipFile(jar) as archive:
        for name in archive.namelist():
            if name.startswith("common/message/") and name.endswith(".json"):
                text = re.sub(r"^\s*//.*$", "", archive.read(name).decode(), flags=re.MULTILINE)
                definition = json.loads(text)
                common = {s["name"]: s["fields"] for s in definition.get("commonStructs", ())}
                _inline(definition.get("fields", ()), common)
                found[definition["name"]] = definition
    return found


def _inline(fields: list[Any], common: dict[str, Any]) -> None:
    for field in fields:
        element = field["type"].removeprefix("[]")
        if element in common:
            field["fields"] = common[element]
        _inline(field.get("fields", ()), common)


@pytest.mark.skipif(not JARS, reason="no kafka-clients jar: the set-up has not fetched any")
@pytest.mark.parametrize("cls", CLASSES, ids=[cls.__name__ for cls in CLASSES])
def test_declarations_equal_those_in_the_jar(cls: type[Message]) -> None:
    compared = 0
    for jar in JARS:
        definition = definitions(jar).get(cls.__name__)
        if definition is None:
            assert cls.__name__ in NEWER_THAN_3, f"{jar.name} has no {cls.__name__}"
            continue
        if not knows(definition, cls):
            continue
        assert_declared_alike(cls, definition)
        compared += 1
    if not compared:
        pytest.skip(f"{', '.join(jar.name for jar in JARS)} have no {cls.__name__}")
