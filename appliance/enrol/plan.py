"""The steps with which a host joins a mill, as a plan that continues after an interruption.

This module is pure. The state is what the files of the host show, and what brokers have answered in
this run. A step changes one thing. After an interruption the next run begins with what the files
show, and asks the brokers again which secret they accept. There are three secrets:

- `pending`, a password that this host has made. It is written to a file before the brokers get it,
  so it is never lost. If the brokers accept it, it becomes the password.
- `password`, the password with which the host has joined.
- `file`, the secret of the join file. The brokers accept it until a host has used it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum


class Secret(Enum):
    """A secret with which the host can try to log in."""

    PENDING = "pending"
    PASSWORD = "password"
    FILE = "file"


class Step(Enum):
    """The next thing to do."""

    TRY_PENDING = "log in with the pending password"
    TRY_PASSWORD = "log in with the password"
    TRY_FILE = "log in with the secret of the join file"
    WRITE_PENDING = "make a password and write it as pending"
    CHANGE = "replace the accepted secret by the pending password"
    ADOPT = "rename the pending password to the password"
    WRITE_CONFIG = "write the configuration file"
    CHECK = "dial every broker"
    DONE = "nothing"
    REFUSED = "stop, because the brokers accept no secret"


@dataclass(frozen=True, slots=True)
class JoinState:
    """What is known of the host and of its secrets."""

    has_file: bool
    """True if there is a join file."""
    has_pending: bool
    has_password: bool
    has_config: bool
    renews: bool = False
    """True if a password that the brokers accept must be replaced too (`join --renew`)."""
    accepted: Mapping[Secret, bool] = field(default_factory=dict)
    """What the brokers have answered in this run to each secret that was tried."""
    has_adopted: bool = False
    """True if the password was replaced in this run."""
    is_checked: bool = False


def next_step(state: JoinState) -> Step:
    """Return the next step."""
    accepted = state.accepted
    if state.has_pending and Secret.PENDING not in accepted:
        return Step.TRY_PENDING
    if state.has_pending and accepted[Secret.PENDING]:
        return Step.ADOPT
    if state.has_password and Secret.PASSWORD not in accepted:
        return Step.TRY_PASSWORD
    if state.has_password and accepted[Secret.PASSWORD]:
        if state.has_adopted or not state.renews:
            return _after_login(state)
    elif not state.has_file:
        return Step.REFUSED
    elif Secret.FILE not in accepted:
        return Step.TRY_FILE
    elif not accepted[Secret.FILE]:
        return Step.REFUSED
    return Step.CHANGE if state.has_pending else Step.WRITE_PENDING


def _after_login(state: JoinState) -> Step:
    """Return the next step of a host that has a password which the brokers accept."""
    if not state.has_config:
        return Step.WRITE_CONFIG
    return Step.DONE if state.is_checked else Step.CHECK
