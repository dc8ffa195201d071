"""What pages show and no test runs as it stands, each with the reason.

`tests/unit/appliance/test_page_blocks.py` fails for an entry that no page has any more.
"""

from tests.harness.pages import Command

OTHER_LANGUAGES = {
    "docs/proxy.md nginx": "tests/interop/test_proxy.py runs nginx with it",
}
"""Blocks of a page in a language that is not the mill's."""

ROOT = "changes the machine: needs root or a package manager"
INTERNET = "fetches from the internet"
DOCKER = "needs Docker; tests/unit/appliance/test_in_containers.py compares the words"
SETUP = "`make` sets the machine up; tests/e2e/test_up_counts.py starts the mill by its command"

NOT_RUN = {
    "README.md git clone": INTERNET,
    "README.md make up": SETUP,
    "README.md xdg-open": "needs a desktop",
}
"""The beginnings of commands, behind their page."""

NOT_PASTED: dict[str, str] = {
    "docs/kafka.md": "names another cluster; tests/e2e/test_existing_kafka.py counts over one",
    "docs/spark.md": "names another machine; tests/crash/test_stream_cluster.py has a cluster",
}
"""Pages whose YAML is checked, but not put into a running mill."""


def reason_not_run(command: Command) -> str | None:
    """Why a command is not run; None if it is."""
    typed = f"{command.block.page} {command.text}"
    return next((why for start, why in NOT_RUN.items() if typed.startswith(start)), None)
