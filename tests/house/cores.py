"""The list of pure cores, which do no input and output. HOUSE.md names the large ones."""

import re
from collections.abc import Collection

from tests.house.tree import Module, module

PURE = {
    "broker": {
        "controller",
        "coordinators",
        "metadata",
        "quorum",
        "quotas",
        "replication",
        "security",
        "cluster/birth",
        "cluster/describe_quorum",
        "cluster/envelopes",
        "cluster/found",
        "cluster/leader_watch",
        "cluster/held_id",
        "cluster/membership",
        "cluster/membership_effects",
        "cluster/moves",
        "cluster/reports",
        "cluster/voter_orders",
        "real/handshakes",
        "real/tls_engine",
        "sessions/versions",
        "alarm",
        "budget",
        "purgatory",
        "timers",
        "world",
    },
    "protocol": {
        "security",
        "wire",
        "messages",
        "collector_report",
        "copy_progress",
        "client/fetch_core",
        "client/group_core",
        "client/polls",
        "client/produce_codes",
        "client/producer_core",
        "client/reading",
        "client/transaction_core",
    },
    "collector": {
        "identity/checkpoints",
        "identity/copies",
        "identity/decide",
        "identity/delivery",
        "identity/round",
        "identity/trimming",
        "read/open_events",
        "send/lag_windows",
        "send/outbox",
        "send/position_topics",
        "send/replaying",
        "send/rights",
        "text/events",
        "text/fingerprint",
        "text/holes",
        "text/lines",
        "text/recode",
        "text/tailer",
        "timing/pace",
        "timing/rhythm",
        "timing/schedule",
    },
    "sinks": {
        "cells/blocks",
        "cells/bulk",
        "cells/merge",
        "cells/recent",
        "facts",
        "keeping",
        "keys",
        "ledger",
        "mysql/views",
        "ranges",
        "redis/scrub",
        "redis/view",
        "rows",
        "values",
    },
    "monitor": {
        "admin/forms",
        "admin/operations",
        "admin/orders",
        "admin/session",
        "alerts/cluster_kinds",
        "alerts/core",
        "alerts/kinds",
        "alerts/message",
        "alerts/prometheus_rules",
        "alerts/view",
        "api/group_metrics",
        "api/rows",
        "asking/group_answers",
        "asking/messages",
        "asking/topics",
        "assembly/assemble",
        "assembly/cluster_views",
        "assembly/readers",
        "history/series",
        "lag/offset_history",
        "lag/reader_status",
        "lag/rules",
        "login/passwords",
        "login/people",
        "login/proxies",
        "login/sessions",
        "login/throttle",
        "site/brokers",
        "site/flow",
        "site/moves",
        "site/plots",
        "state/alert",
        "state/broker_facts",
        "state/filling",
        "state/levels",
        "state/moves",
        "state/partition_health",
        "state/placement",
        "state/progress",
        "state/reading",
        "state/snapshot",
        "state/watches",
        "views/changes",
        "views/charts",
        "views/clusters",
        "views/findings",
        "views/ranges",
        "views/render",
        "views/stages",
        "views/way_end",
    },
    "stream": {
        "archive/contents",
        "config/expression",
        "config/formats",
        "config/metrics",
        "config/windows",
        "exposition",
        "fold/compile",
        "fold/counts",
        "fold/groupings",
        "parse/access",
        "parse/columns",
        "parse/json_paths",
        "parse/numbers",
        "pieces",
        "quarantine/search",
        "source/admission",
        "stages",
    },
    "appliance": {
        "backup/main_host",
        "backup/manifest",
        "backup/plan",
        "cli/top_view",
        "detect/columns",
        "detect/detect",
        "detect/detection",
        "detect/edit",
        "detect/events",
        "detect/guessing",
        "detect/judging",
        "detect/moments",
        "detect/noise",
        "detect/proposing",
        "detect/rows",
        "detect/seen",
        "detect/tables",
        "detect/yaml_text",
        "dump/scan",
        "enrol/host_config",
        "enrol/join_file",
        "enrol/plan",
        "enrol/rights",
        "kafka/kafka_deal",
        "kafka/lines",
        "kafka/move_plan",
        "kafka/removal_plan",
        "machine/service",
        "supervisor/core",
        "supervisor/one_part",
        "supervisor/turns",
    },
}


def is_pure(of: Module) -> bool:
    """Return True if the file belongs to a pure core."""
    inner = "/".join(of.parts[1:])
    return any(inner == name or inner.startswith(name + "/") for name in PURE.get(of.room, ()))


def told_by(house: str) -> set[str]:
    """Return the paths of the cores that HOUSE.md names in the paragraph about the large ones."""
    told = house[house.index("The large ones:") :].partition("\n\n")[0]
    found: set[str] = set()
    folder = ""
    for name in re.findall(r"`([\w/]+)`", told):
        # A name without a folder is in the folder of the name before it.
        path = name if "/" in name else f"{folder}/{name}"
        folder = path.rpartition("/")[0]
        found.add(path)
    return found


def unkept(told: Collection[str], paths: Collection[str]) -> tuple[list[str], list[str]]:
    """Return the listed cores that do not exist, and the files of listed cores that no law
    checks."""
    missing, unlisted = [], []
    for core in sorted(told):
        files = [path for path in paths if path == f"{core}.py" or path.startswith(f"{core}/")]
        if not files:
            missing.append(core)
        unlisted += [path for path in files if not is_pure(module(path, ""))]
    return missing, sorted(unlisted)
