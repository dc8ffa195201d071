"""The settings of users in `kafka-configs`: SCRAM credentials in Kafka's spelling."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from appliance.kafka_tools.base import UsageFault
from protocol.security.scram import ITERATIONS_DEFAULT, MECHANISMS, Mechanism

_CREDENTIAL = re.compile(r"\[?(?:iterations=(?P<iterations>\d+),)?password=(?P<password>.+?)\]?")
_PASSWORD = re.compile(r"password=.*", re.DOTALL)


@dataclass(frozen=True, slots=True, repr=False)
class NewPassword:
    """The value of a SCRAM setting."""

    password: str
    iterations: int


def credential_changes(
    changes: Mapping[str, str | None],
) -> dict[Mechanism, NewPassword | None]:
    """Return the new password of each SCRAM mechanism; None deletes the credential.

    Raises UsageFault for any other setting. After a password, the error does not show the name of
    an invalid setting. Settings are separated by commas, so the name can be the end of a password
    that contains a comma.
    """
    found: dict[Mechanism, NewPassword | None] = {}
    for name, value in changes.items():
        mechanism = MECHANISMS.get(name)
        if mechanism is None:
            expected = " or ".join(MECHANISMS)
            shown = "another setting" if any(found.values()) else name
            raise UsageFault(f"found {shown}, expected {expected}, or quotas alone")
        if value is None:
            found[mechanism] = None
            continue
        match = _CREDENTIAL.fullmatch(value)
        if match is None:
            raise UsageFault(f"the value of {name} must be [iterations=N,password=P]")
        iterations = int(match["iterations"] or ITERATIONS_DEFAULT)
        found[mechanism] = NewPassword(match["password"], iterations)
    return found


def user_line(user: str, credentials: Mapping[Mechanism, int]) -> str:
    """Return the line that describes a user."""
    shown = ", ".join(
        f"{mechanism.sasl_name}=iterations={iterations}"
        for mechanism, iterations in sorted(credentials.items())
    )
    return f"SCRAM credential configs for user-principal '{user}' are {shown}"


def without_passwords(text: str) -> str:
    """Return the arguments of a command up to the first password, without everything after it."""
    return _PASSWORD.sub("password=[hidden]", text)
