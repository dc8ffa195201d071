"""The faults of `sinks` in the file: servers of the user's own with TLS."""

from pathlib import Path

import pytest

from appliance.config.faults import ConfigFaults
from appliance.config.load import load_text

TABLE = [
    (
        "sinks: {redis: {tls: {}}}",
        "mill.yaml:1:22: sinks.redis.tls: found no sinks.redis.host beside it",
        "the host of your own server, or no tls",
    ),
    (
        "sinks: {mysql: {host: h, tls: {ca: nothing.pem}}}",
        "mill.yaml:1:36: sinks.mysql.tls.ca: found 'nothing.pem' (No such file or directory)",
        "a file of CAs in PEM format",
    ),
    (
        "sinks: {redis: {host: h, tls: {ca: /dev/null}}}",
        "mill.yaml:1:36: sinks.redis.tls.ca: found '/dev/null' (no certificate or crl found)",
        "a file of CAs in PEM format",
    ),
    (
        "sinks: {redis: {host: h, tls: {verify: false}}}",
        "mill.yaml:1:32: sinks.redis.tls.verify: found the unknown key 'verify'",
        "expected one of ca",
    ),
]


@pytest.mark.parametrize(("text", "where", "expected"), TABLE, ids=[row[0] for row in TABLE])
def test_a_fault_names_its_place_and_the_remedy(text: str, where: str, expected: str) -> None:
    with pytest.raises(ConfigFaults) as raised:
        load_text(text, "mill.yaml", Path("/nowhere"), {})
    [fault] = [str(one) for one in raised.value.faults]
    assert fault.startswith(where)
    assert expected in fault
