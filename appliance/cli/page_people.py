"""`millrace user … --page`: the people who log in to the page."""

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from appliance.cli import context
from appliance.cli.cluster import OutputFormat, confirm, emit
from appliance.cli.other_hosts import refuse_elsewhere
from appliance.config.faults import ConfigFaults
from appliance.kafka.users import read_password
from appliance.mill import page_logins
from appliance.mill.home import Home
from appliance.output import CommandError, Exit, tell
from broker.controller.credentials import NAME_EXPECTED, USER_NAME
from monitor.login.people import PageRole

ROLES = ", ".join(PageRole)


def list_people(output: OutputFormat, as_json: bool) -> None:
    """Print the people with their roles."""
    rows = [
        {"user": one.name, "role": str(one.role)}
        for one in page_logins.people(home_of_page()).values()
    ]
    emit("page-users/1", rows, output, as_json, heads=("user", "role"), nothing="no people")


def add_person(name: str, role: str | None, password_file: str | None, as_json: bool) -> None:
    """Create a person. Raises CommandError."""
    check_name(name)
    if role not in list(PageRole):
        found = "no --role" if role is None else f"--role {role}"
        raise CommandError(f"found {found}, expected --role with one of {ROLES}", Exit.USAGE)
    home = home_of_page()
    if name in page_logins.people(home):
        raise CommandError(_exists(name))
    person = page_logins.new_person(name, PageRole(role), read_password(name, password_file))
    with page_logins.changed_people(home) as people:
        if name in people:
            raise CommandError(_exists(name))
        people[name] = person
    _tell(f"{name} can log in to the page as {role}", name, "added", as_json)


def change_password(name: str, password_file: str | None, as_json: bool) -> None:
    """Change a person's password. Raises CommandError."""
    home = home_of_page()
    _existing(page_logins.people(home), name)
    password = read_password(name, password_file)
    with page_logins.changed_people(home) as people:
        role = _existing(people, name).role
        people[name] = page_logins.new_person(name, role, password)
    text = f"{name} has another password on the page, and must log in again"
    _tell(text, name, "password", as_json)


def remove_person(name: str, yes: bool, as_json: bool) -> None:
    """Remove a person. Raises CommandError."""
    home = home_of_page()
    people = page_logins.people(home)
    _existing(people, name)
    lines = [f"{name} will not be able to log in to the page, and open pages of {name} will end"]
    if len(people) == 1:
        lines.append(f"{name} is the last person: afterwards no one can log in to the page")
    confirm(lines, yes)
    with page_logins.changed_people(home) as people:
        people.pop(name, None)
    _tell(f"{name} is removed from the page", name, "removed", as_json)


def home_of_page() -> Home:
    """Return the folders of the mill. Raises CommandError if the page is on another host."""
    # People can be added while the file has faults.
    with suppress(ConfigFaults):
        refuse_elsewhere("the page", context.mill_as_it_runs())
    return context.home()


def check_name(name: str) -> None:
    """Raise CommandError for a name that cannot be used."""
    if not USER_NAME.fullmatch(name):
        raise CommandError(f"found name {name!r}, expected {NAME_EXPECTED}", Exit.USAGE)


def refuse_cluster_options(given: Sequence[tuple[str, Any]]) -> None:
    """Raise CommandError if an option that concerns brokers is given together with `--page`."""
    for option, value in given:
        if value is not None:
            raise CommandError(
                f"{option} concerns the brokers, and --page the page: use one of them", Exit.USAGE
            )


def _existing(people: dict[str, Any], name: str) -> Any:
    if name not in people:
        raise CommandError(f"there is no user {name} of the page", Exit.NOT_FOUND)
    return people[name]


def _exists(name: str) -> str:
    return (
        f"user {name} of the page already exists; `./millrace user password {name} --page` changes"
        " the password"
    )


def _tell(words: str, name: str, change: str, as_json: bool) -> None:
    tell(words, "page-user/1", {"user": name, "change": change}, as_json)
