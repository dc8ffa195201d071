"""`kafka-features`: show the features of the cluster, and change their levels."""

import argparse
import re
from collections.abc import Mapping, Sequence

from appliance.kafka.session import open_cluster, run
from appliance.kafka_tools.base import (
    ToolParser,
    UsageFault,
    read_properties,
    run_tool,
    servers_of,
)
from appliance.output import CommandError, Exit, out
from broker.metadata.features import LEVEL_NAMES, METADATA_VERSION
from protocol.client.feature_admin import (
    Features,
    UpgradeType,
    describe_features,
    update_features,
)
from protocol.errors import ApiError

SHORT = re.compile(r"[+-]?[0-9]{1,9}")

LEVELS_OF = {name: level for level, name in LEVEL_NAMES.items()}

OPTIONS = {
    "describe": frozenset({"node_id"}),
    "upgrade": frozenset({"metadata", "release_version", "feature", "dry_run"}),
    "downgrade": frozenset({"metadata", "release_version", "feature", "dry_run", "unsafe"}),
    "disable": frozenset({"feature", "dry_run", "unsafe"}),
}
"""The commands of the tool, and the options of each command."""

NOT_HERE = ("version-mapping", "feature-dependencies")
"""The commands of Kafka's tool that are refused, because they print tables of Kafka's own
releases."""


def main(arguments: Sequence[str]) -> int:
    """Run the tool."""
    return run_tool(_parser(), arguments, _work)


def _parser() -> ToolParser:
    parser = ToolParser("features", "Show the features of the cluster, and change their levels.")
    parser.connects()
    parser.refuses("--bootstrap-controller", "is a port for controllers only: ask a broker")
    parser.add_argument(
        "command", choices=(*OPTIONS, *NOT_HERE), metavar="|".join(OPTIONS), nargs="?"
    )
    parser.add_argument("--node-id", type=int, metavar="ID", help="Describe: ask this broker.")
    parser.add_argument("--metadata", metavar="LEVEL", help="A level by its name: 4.0-IV2.")
    parser.add_argument("--release-version", metavar="LEVEL", help="The same as --metadata.")
    parser.add_argument(
        "--feature",
        action="append",
        metavar="NAME=LEVEL",
        help="A feature and its level, for example metadata.version=24; disable takes the name.",
    )
    parser.add_argument("--unsafe", action="store_true", help="A downgrade that loses metadata.")
    parser.add_argument("--dry-run", action="store_true", help="Validate it, and change nothing.")
    return parser


def _work(options: argparse.Namespace) -> int:
    command = options.command
    if command is None:
        raise UsageFault(f"expected a command: {', '.join(OPTIONS)}")
    if command in NOT_HERE:
        text = f"{command} lists releases of Apache Kafka; the levels here are "
        raise CommandError(text + ", ".join(LEVELS_OF), Exit.USAGE)
    for name in frozenset().union(*OPTIONS.values()) - OPTIONS[command]:
        if getattr(options, name):
            raise UsageFault(f"--{name.replace('_', '-')} does not belong to {command}")
    servers = servers_of(options, read_properties(options.command_config))
    if command == "describe":
        return _describe(servers, options.node_id)
    levels = _levels(command, options)
    kind = UpgradeType.UPGRADE
    if command != "upgrade":
        kind = UpgradeType.UNSAFE_DOWNGRADE if options.unsafe else UpgradeType.SAFE_DOWNGRADE
    return _update(servers, command, levels, kind, options.dry_run)


def _describe(servers: str, node_id: int | None) -> int:
    async def work() -> Features:
        async with open_cluster(servers) as cluster:
            return await describe_features(cluster, node_id)

    found = run(work())
    for name, (oldest, newest) in sorted(found.supported.items()):
        level = found.finalised.get(name, 0)
        out(
            f"Feature: {name:<42}SupportedMinVersion: {_shown(name, oldest):<17}"
            f"SupportedMaxVersion: {_shown(name, newest):<17}"
            f"FinalizedVersionLevel: {_shown(name, level):<17}"
            f"Epoch: {'-' if found.epoch is None else found.epoch}"
        )
    return Exit.OK


def _shown(feature: str, level: int) -> str:
    if feature == METADATA_VERSION:
        return LEVEL_NAMES.get(level, f"UNKNOWN {level}")
    return str(level)


def _levels(command: str, options: argparse.Namespace) -> dict[str, int]:
    """Return the requested levels by feature. Raises UsageFault and CommandError."""
    levels: dict[str, int] = {}
    if options.metadata and options.release_version:
        raise UsageFault("argument --metadata: not allowed with argument --release-version")
    name = options.metadata or options.release_version
    if name:
        if options.metadata:
            out(" `metadata` flag is deprecated and may be removed in a future release.")
        if name not in LEVELS_OF:
            raise CommandError(
                f"Unknown {METADATA_VERSION} '{name}'. Supported {METADATA_VERSION} are: "
                f"{', '.join(LEVELS_OF)}"
            )
        levels[METADATA_VERSION] = LEVELS_OF[name]
    for text in options.feature or ():
        feature, level = (text, 0) if command == "disable" else _named_level(text)
        if feature in levels:
            raise CommandError(f"Feature {feature} was specified more than once.")
        levels[feature] = level
    if not levels:
        raise CommandError(f"You must specify at least one feature to {command}")
    return levels


def _named_level(text: str) -> tuple[str, int]:
    name, separator, level = (part.strip() for part in text.partition("="))
    fault = f"Can't parse feature=level string {text}: "
    if not separator:
        raise CommandError(f"{fault}equals sign not found.")
    if not SHORT.fullmatch(level) or not -(1 << 15) <= int(level) < 1 << 15:
        raise CommandError(f"{fault}unable to parse {level} as a short.")
    return name, int(level)


def _update(
    servers: str, command: str, levels: Mapping[str, int], kind: UpgradeType, dry_run: bool
) -> int:
    async def work() -> dict[str, ApiError | None]:
        async with open_cluster(servers) as cluster:
            return await update_features(cluster, levels, kind, validate_only=dry_run)

    found = run(work())
    failed = 0
    for feature, error in sorted(found.items()):
        level = levels[feature]
        if error is None:
            done = "disabled" if command == "disable" else f"{command}d to {level}"
            out(f"{feature} {'can be' if dry_run else 'was'} {done}.")
        else:
            failed += 1
            what = f"{command} {feature}" + ("" if command == "disable" else f" to {level}")
            out(f"{'Can' if dry_run else 'Could'} not {what}. {error.message or error.code.name}")
    if failed:
        raise CommandError(f"{failed} out of {len(levels)} operation(s) failed.")
    return Exit.OK
