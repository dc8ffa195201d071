"""The type of `cluster.hosts`: the host of each broker, by broker id. This module has only types.

The checks of the values are in `hosts`.
"""

from collections.abc import Mapping
from typing import Annotated

from pydantic import PlainValidator, WithJsonSchema

from appliance.config.faults import found_text

EXPECTED = "the host of each broker by its id, such as {1: mill-1.example.org, 2: …, 3: …}"


def _parse_hosts(value: object) -> dict[int, str] | None:
    """Return the host of each broker, in ascending order of the ids. Raises ValueError."""
    if value is None:
        return None
    if not isinstance(value, Mapping):
        raise ValueError(f"found {found_text(value)}, expected {EXPECTED}")
    hosts: dict[int, str] = {}
    for key, host in value.items():
        text = str(key)
        if not (text.isascii() and text.isdigit()) or int(text) in hosts:
            raise ValueError(f"found the key {text!r}, expected {EXPECTED}")
        if not isinstance(host, str):
            raise ValueError(f"found {found_text(host)} for broker {text}, expected {EXPECTED}")
        hosts[int(text)] = host
    return dict(sorted(hosts.items()))


Hosts = Annotated[
    Mapping[int, str] | None,
    PlainValidator(_parse_hosts),
    WithJsonSchema(
        {
            "anyOf": [
                {
                    "type": "object",
                    "patternProperties": {"^[1-9]$": {"type": "string"}},
                    "additionalProperties": False,
                    "minProperties": 3,
                },
                {"type": "null"},
            ]
        }
    ),
]
