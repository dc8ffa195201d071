"""Performs the steps of `plan` on a host: writes files, logs in, and changes the password."""

import asyncio
import secrets
from collections.abc import Callable
from dataclasses import replace

from appliance.enrol.entering import (
    MillSeen,
    MillTarget,
    SecretRefused,
    is_accepted,
    look,
    replace_secret,
)
from appliance.enrol.host_files import HostFiles, Joined
from appliance.enrol.plan import JoinState, Secret, Step, next_step
from appliance.output import CommandError, Exit

PASSWORD_BYTES = 32
CHANGES_MAX = 3
"""The most attempts to change the password in one run."""

LOST = (
    "the mill does not accept the password of this host: the collector was revoked, or was enrolled"
    " again; `millrace enrol list` at the mill shows it. Join with a new file"
)


def used_text(name: str) -> str:
    """Return the message that the mill does not accept the join file of a collector."""
    return (
        f"the mill does not accept the join file of {name}: it was used, has expired or was"
        " revoked; `millrace enrol list` at the mill shows which, and"
        f" `millrace enrol collector {name} --again` makes another one"
    )


class Joining:
    """One run of `join`. `run` can be called again after an interruption anywhere."""

    def __init__(
        self,
        files: HostFiles,
        target: MillTarget,
        file_secret: str | None,
        write_config: Callable[[], None],
        *,
        joined: Joined,
        has_config: bool,
        renews: bool = False,
    ) -> None:
        """`file_secret` is None without a join file. `write_config` writes the configuration.
        `joined` is written to `joined.json` when the mill has accepted a secret of the host."""
        self.seen: MillSeen | None = None
        """What the last step saw of the mill."""
        self._files = files
        self._target = target
        self._file_secret = file_secret
        self._write_config = write_config
        self._joined = joined
        self._change_count = 0
        self.state = JoinState(
            has_file=file_secret is not None,
            has_pending=files.has(Secret.PENDING),
            has_password=files.has(Secret.PASSWORD),
            has_config=has_config,
            renews=renews,
        )

    def run(self) -> None:
        """Perform all steps. Raises CommandError."""
        while (step := next_step(self.state)) is not Step.DONE:
            self.perform(step)

    def perform(self, step: Step) -> None:
        """Perform one step, and note its result in the state. Raises CommandError."""
        state, files = self.state, self._files
        match step:
            case Step.TRY_PENDING:
                self._try(Secret.PENDING)
            case Step.TRY_PASSWORD:
                self._try(Secret.PASSWORD)
            case Step.TRY_FILE:
                self._try(Secret.FILE)
            case Step.WRITE_PENDING:
                files.note(self._joined)
                files.write_pending(secrets.token_urlsafe(PASSWORD_BYTES))
                # The brokers cannot know a password that was made a moment ago.
                tried = {**state.accepted, Secret.PENDING: False}
                self.state = replace(state, has_pending=True, accepted=tried)
            case Step.CHANGE:
                self._change()
            case Step.ADOPT:
                files.adopt()
                self.state = replace(
                    state,
                    has_pending=False,
                    has_password=True,
                    has_adopted=True,
                    accepted={Secret.PASSWORD: True},
                )
            case Step.WRITE_CONFIG:
                self._write_config()
                self.state = replace(state, has_config=True)
            case Step.CHECK:
                self._check()
            case Step.REFUSED:
                text = used_text(self._joined.name) if state.has_file else LOST
                raise CommandError(text, Exit.CONDITION)

    def _value(self, secret: Secret) -> str:
        if secret is not Secret.FILE:
            return self._files.read(secret)
        assert self._file_secret is not None, "the plan uses the secret of a file only with a file"
        return self._file_secret

    def _try(self, secret: Secret) -> None:
        is_good = asyncio.run(is_accepted(self._target, self._value(secret)))
        self.state = replace(self.state, accepted={**self.state.accepted, secret: is_good})

    def _check(self) -> None:
        try:
            self.seen = asyncio.run(look(self._target, self._files.read(Secret.PASSWORD)))
        except SecretRefused as error:
            # The collector was revoked or enrolled again after the step before.
            raise CommandError(LOST, Exit.CONDITION) from error
        self.state = replace(self.state, is_checked=True)

    def _change(self) -> None:
        self._change_count += 1
        if self._change_count > CHANGES_MAX:
            raise CommandError(
                "the mill has not taken over the password of this host; type the same command"
                " again",
                Exit.UNREACHABLE,
            )
        present = Secret.PASSWORD if self.state.accepted.get(Secret.PASSWORD) else Secret.FILE
        password = self._files.read(Secret.PENDING)
        asyncio.run(replace_secret(self._target, self._value(present), password))
        # The answers so far are from before the change.
        self.state = replace(self.state, accepted={})
