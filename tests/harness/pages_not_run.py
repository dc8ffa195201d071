"""The commands and blocks on pages that no test runs as they are, each with the reason.

`tests/unit/appliance/test_page_blocks.py` fails for an entry that no page has any more.
"""

from tests.harness.pages import Command

OTHER_LANGUAGES = {
    "docs/howto/three-hosts.md text": "a compose file for hosts without a name server",
    "docs/proxy.md nginx": "tests/interop/test_proxy.py runs nginx with it",
    "docs/proxy.md text": "needs oauth2-proxy and a provider; the page says that it was not tried",
    "docs/reference/configuration.md text": "a query of DuckDB, which is no part of the mill",
    "docs/reference/formats.md text": "sample lines, which the tests of the formats read",
    "docs/reference/inputs.md text": "ways to write one key, which unit tests of its part have",
    "docs/reference/metrics.md text": "one key, which tests/unit/stream/config has",
}
"""Blocks of a page in a language that is not the mill's."""

ROOT = "needs root and systemd; tests/unit/appliance/test_service.py has systemd check the unit"
INTERNET = "fetches from the internet"
DOCKER = "needs Docker; tests/unit/appliance/test_in_containers.py compares the words"
SETUP = "sets the machine up; tests/e2e/test_up_counts.py starts and ends a mill"
RESTORE = "needs a folder without a mill; tests/e2e/test_backup.py restores one"

FOUR = "needs four brokers; tests/e2e/test_brokers_come_and_go.py adds and removes one"
GROWS = "restarts the mill with three brokers; tests/e2e/test_cluster_grows.py does the same"
JOINS = "needs another host; tests/e2e/test_a_host_joins.py lets a folder join"
REPLACES = "needs three brokers; tests/e2e/test_cluster_grows.py replaces a disk"
OPENS = "opens the machine; tests/e2e/test_open_mill.py opens one in a network namespace"
HOSTS = "needs three hosts; tests/e2e/test_main_host_replaced.py has them in network namespaces"
SEVERAL = "needs several brokers; tests/interop/test_reassign_live.py moves replicas"

NOT_RUN = {
    "README.md git clone": INTERNET,
    "README.md make up": SETUP,
    "README.md xdg-open": "needs a desktop",
    "docs/backup.md ./millrace restore": RESTORE,
    "docs/containers.md docker compose": DOCKER,
    "docs/containers.md mysql": DOCKER,
    "docs/howto/add-a-broker.md ./millrace": FOUR,
    "docs/howto/add-a-web-server.md": JOINS,
    "docs/howto/existing-kafka.md make up": SETUP,
    "docs/howto/grow.md ./millrace": GROWS,
    "docs/howto/move-replicas.md ./millrace": SEVERAL,
    "docs/howto/open-to-the-network.md ./millrace up": OPENS,
    "docs/howto/open-to-the-network.md ./millrace user": "asks for a password, as docs/security.md",
    "docs/howto/open-to-the-network.md kcat": OPENS,
    "docs/howto/open-to-the-network.md sudo": "needs root and ufw, and changes the firewall",
    "docs/howto/remove-a-broker.md ./millrace": FOUR,
    "docs/howto/replace-a-disk.md ./millrace": REPLACES,
    "docs/howto/replace-a-disk.md docker": DOCKER,
    "docs/howto/replace-a-disk.md mv": REPLACES,
    "docs/howto/three-hosts.md": HOSTS,
    "docs/install.md make dist": "takes minutes; tests/e2e/test_wheel.py builds the wheel",
    "docs/install.md pip install": INTERNET,
    "docs/security.md ./millrace user": "asks for a password; tests/interop/test_user_commands.py",
    "docs/service.md make setup": SETUP,
    "docs/service.md sudo": ROOT,
    "docs/upgrade.md docker compose": DOCKER,
    "docs/upgrade.md git pull": INTERNET,
}
"""The pages and the beginnings of commands that are not run, each with the reason."""

NOT_PASTED: dict[str, str] = {
    "docs/howto/add-a-broker.md": "adds a fourth broker to a mill of three",
    "docs/howto/add-a-web-server.md": "is for two hosts; tests/e2e/test_a_host_joins.py has both",
    "docs/howto/existing-kafka.md": "as docs/kafka.md",
    "docs/howto/grow.md": "needs two more brokers; tests/e2e/test_cluster_grows.py writes it",
    "docs/howto/existing-spark.md": "as docs/spark.md",
    "docs/howto/open-to-the-network.md": OPENS,
    "docs/howto/three-hosts.md": HOSTS,
    "docs/proxy.md": "needs a proxy that logs people in; tests/unit/monitor/login has its headers",
    "docs/kafka.md": "names another cluster; tests/e2e/test_existing_kafka.py counts over one",
    "docs/spark.md": "names another machine; tests/crash/test_stream_cluster.py has a cluster",
}
"""Pages whose YAML is checked, but not put into a running mill, each with the reason."""


def reason_not_run(command: Command) -> str | None:
    """Return why a command is not run, or None if it is run."""
    typed = f"{command.block.page} {command.text}"
    return next((why for start, why in NOT_RUN.items() if typed.startswith(start)), None)
