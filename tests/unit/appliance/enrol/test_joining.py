"""The steps of `join`, with an interruption after each of them."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from appliance.enrol import joining
from appliance.enrol.entering import MillSeen, MillTarget, SecretRefused
from appliance.enrol.host_files import HostFiles, Joined
from appliance.enrol.joining import Joining
from appliance.enrol.plan import Secret, Step, next_step
from appliance.mill.home import Home
from appliance.output import CommandError
from protocol.security.scram import Mechanism

FILE_SECRET = "of the join file"
TARGET = MillTarget((("mill", 9192),), None, "collector.web-07", Mechanism.SHA_512)

JOINED = Joined("cluster", "web-07", "machine")


class FakeMill:
    """The brokers of a mill: the secret of one user, and whether they lose the next answers."""

    def __init__(self, secret: str = FILE_SECRET) -> None:
        self.secret = secret
        self.lost_changes = 0
        """The number of changes that do not reach the brokers."""

    async def is_accepted(self, target: MillTarget, secret: str) -> bool:
        return secret == self.secret

    async def replace_secret(self, target: MillTarget, secret: str, password: str) -> None:
        if self.lost_changes:
            self.lost_changes -= 1
        elif secret == self.secret:
            self.secret = password

    async def look(self, target: MillTarget, secret: str) -> MillSeen:
        if secret != self.secret:
            raise SecretRefused("refused")
        return MillSeen("cluster", 3, [])


class Host:
    """A host whose processes can die."""

    def __init__(self, folder: Path, mill: FakeMill, monkeypatch: pytest.MonkeyPatch) -> None:
        self.home = Home(folder, folder / "configs" / "millrace.yaml")
        self.files = HostFiles(self.home, folder / "machine-id")
        for name in ("is_accepted", "replace_secret", "look"):
            monkeypatch.setattr(joining, name, getattr(mill, name))

    def process(self, secret: str | None = FILE_SECRET, *, renews: bool = False) -> Joining:
        """Return a new run of the command, which knows only the files."""
        config = self.home.config_file

        def write() -> None:
            config.parent.mkdir(parents=True, exist_ok=True)
            config.write_text("written")

        return Joining(
            self.files,
            TARGET,
            secret,
            write,
            joined=JOINED,
            has_config=config.exists(),
            renews=renews,
        )

    def password(self) -> str:
        return self.files.read(Secret.PASSWORD)


@pytest.fixture
def mill() -> FakeMill:
    return FakeMill()


@pytest.fixture
def host(tmp_path: Path, mill: FakeMill, monkeypatch: pytest.MonkeyPatch) -> Host:
    return Host(tmp_path, mill, monkeypatch)


def steps_of(run: Joining, limit: int = 100) -> list[Step]:
    """Perform at most this many steps, and return them."""
    done: list[Step] = []
    while len(done) < limit and (step := next_step(run.state)) is not Step.DONE:
        run.perform(step)
        done.append(step)
    return done


def is_joined(host: Host, mill: FakeMill) -> bool:
    """Return True if the host has a password of its own, which the mill accepts, and a
    configuration."""
    return (
        host.password() == mill.secret != FILE_SECRET
        and not host.files.has(Secret.PENDING)
        and host.home.config_file.exists()
    )


def test_a_host_joins(host: Host, mill: FakeMill) -> None:
    assert steps_of(host.process()) == [
        Step.TRY_FILE,
        Step.WRITE_PENDING,
        Step.CHANGE,
        Step.TRY_PENDING,
        Step.ADOPT,
        Step.WRITE_CONFIG,
        Step.CHECK,
    ]
    assert is_joined(host, mill)
    assert host.files.joined() == JOINED
    mode = stat.S_IMODE((host.files.folder / "password").stat().st_mode)
    assert (mode, stat.S_IMODE(host.files.folder.stat().st_mode)) == (0o600, 0o700)


def test_pitfall_35_killed_after_every_step_it_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for first in range(8):
        for second in range(8):
            mill = FakeMill()
            host = Host(tmp_path / f"{first}-{second}", mill, monkeypatch)
            steps_of(host.process(), first)
            steps_of(host.process(), second)
            host.process().run()
            assert is_joined(host, mill), (first, second)


def test_a_renewal_goes_on_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for killed_after in range(8):
        mill = FakeMill()
        host = Host(tmp_path / str(killed_after), mill, monkeypatch)
        host.process().run()
        before = host.password()
        steps_of(host.process(None, renews=True), killed_after)
        host.process(None, renews=True).run()
        assert is_joined(host, mill), killed_after
        assert host.password() != before


def test_a_change_that_does_not_arrive_is_repeated(host: Host, mill: FakeMill) -> None:
    mill.lost_changes = 2
    host.process().run()
    assert is_joined(host, mill)
    mill.lost_changes = 100
    with pytest.raises(CommandError, match="has not taken over the password"):
        host.process(None, renews=True).run()
    mill.lost_changes = 0
    host.process(None, renews=True).run()
    assert is_joined(host, mill)


@pytest.mark.parametrize("when", ["before", "between"])
def test_a_used_file_is_refused(host: Host, mill: FakeMill, when: str) -> None:
    """Another host uses the file first, before this one begins or just before its change."""
    run = host.process()
    if when == "between":
        assert steps_of(run, 2) == [Step.TRY_FILE, Step.WRITE_PENDING]
    mill.secret = "of the other host"
    with pytest.raises(
        CommandError, match="join file of web-07: it was used, has expired or was revoked"
    ):
        run.run()
    with pytest.raises(
        CommandError, match="join file of web-07: it was used, has expired or was revoked"
    ):
        host.process().run()
    assert mill.secret == "of the other host"
    assert not host.files.has(Secret.PASSWORD)
    # A folder that no mill has accepted can join another one.
    assert host.files.joined() == (JOINED if when == "between" else None)


def test_a_used_file_typed_again_on_its_host_is_no_error(host: Host, mill: FakeMill) -> None:
    host.process().run()
    assert steps_of(host.process()) == [Step.TRY_PASSWORD, Step.CHECK]


def test_another_file_replaces_the_password_of_a_revoked_host(host: Host, mill: FakeMill) -> None:
    host.process().run()
    mill.secret = "of another file"
    with pytest.raises(CommandError, match="does not accept the password"):
        host.process(None, renews=True).run()
    host.process("of another file").run()
    assert is_joined(host, mill) and mill.secret != "of another file"


def test_a_host_that_is_revoked_before_the_check_is_told(host: Host, mill: FakeMill) -> None:
    run = host.process()
    assert steps_of(run, 6)[-1] is Step.WRITE_CONFIG
    mill.secret = "of another file"
    with pytest.raises(CommandError, match="does not accept the password"):
        run.run()


def test_where_a_host_has_joined_is_kept(host: Host) -> None:
    assert host.files.joined() is None
    joined = Joined("cluster", "web-07", None)
    host.files.note(joined)
    assert host.files.joined() == joined
    path = host.files.folder / "joined.json"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.write_text("{")
    with pytest.raises(CommandError, match="unknown to which mill"):
        host.files.joined()


def test_one_join_at_a_time(host: Host) -> None:
    with (
        host.files.locked(),
        pytest.raises(CommandError, match="another `join`"),
        HostFiles(host.home).locked(),
    ):
        pass
    with host.files.locked():
        pass
