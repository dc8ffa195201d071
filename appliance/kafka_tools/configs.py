"""`kafka-configs`: describe and change settings of topics, brokers, groups and users."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from appliance.kafka import configs, users
from appliance.kafka.configs import DEFAULT_NAME, Settings
from appliance.kafka.session import open_cluster, run
from appliance.kafka_tools.base import (
    AlreadyTold,
    ToolParser,
    UsageFault,
    one_of,
    read_properties,
    run_tool,
    servers_of,
)
from appliance.kafka_tools.user_configs import (
    NewPassword,
    credential_changes,
    user_line,
    without_passwords,
)
from appliance.output import CommandError, Exit, out, say
from protocol.client.admin_types import ConfigEntry, ConfigResource, ResourceType
from protocol.client.cluster import Cluster
from protocol.client.user_admin import describe_users, remove_credential
from protocol.errors import ApiError
from protocol.security.scram import Mechanism

TYPES = {
    "topics": ResourceType.TOPIC,
    "brokers": ResourceType.BROKER,
    "broker-loggers": ResourceType.BROKER_LOGGER,
    "client-metrics": ResourceType.CLIENT_METRICS,
    "groups": ResourceType.GROUP,
}
USERS = "users"
# Options of quotas, which this version's brokers do not have.
NOT_SUPPORTED = ("clients", "ips")
WITHOUT_QUOTAS = "has quotas, which this version does not know"


def main(arguments: Sequence[str]) -> int:
    """Run the tool."""

    def failed(error: CommandError) -> None:
        shown = without_passwords(" ".join(arguments))
        say(f"Error while executing config command with args '{shown}'")
        say(without_passwords(str(error)))

    return run_tool(_parser(), arguments, _work, failed=failed)


def _parser() -> ToolParser:
    parser = ToolParser(
        "configs", "Describe and change settings of topics, brokers, groups and users."
    )
    parser.connects()
    add = parser.add_argument
    for flag in ("describe", "alter", "all", "force", "entity-default", "broker-defaults"):
        add(f"--{flag}", action="store_true")
    add("--entity-type", choices=[*TYPES, USERS, *NOT_SUPPORTED])
    add("--entity-name")
    for name in ("topic", "broker", "broker-logger", "client-metrics", "group", "user"):
        add(f"--{name}")
    for name in ("client", "ip"):
        parser.refuses(f"--{name}", WITHOUT_QUOTAS)
    for name in ("user", "client", "ip"):
        parser.refuses(f"--{name}-defaults", WITHOUT_QUOTAS)
    parser.refuses("--bootstrap-controller", "is a port for controllers only: ask a broker")
    add("--add-config", metavar="K1=V1,K2=[A,B]")
    add("--add-config-file", metavar="FILE")
    add("--delete-config", metavar="K1,K2")
    return parser


def _work(options: argparse.Namespace) -> None:
    action = one_of(
        options,
        ("describe", "alter"),
        "Command must include exactly one action: --describe, --alter",
    )
    entity_type, name = _entity(options)
    changes = _changes(options) if action == "alter" else {}
    if action == "alter" and name is None:
        raise UsageFault("an entity name must be specified with --alter")
    servers = servers_of(options, read_properties(options.command_config))
    if entity_type == USERS:
        credentials = credential_changes(changes)
        if options.add_config:
            say("a password among the arguments can be read by others: use --add-config-file")
        run(_of_users(servers, name, credentials))
        return
    kind = TYPES[entity_type]

    async def work() -> None:
        async with open_cluster(servers) as cluster:
            if action == "describe":
                await _describe(cluster, kind, name, all_sources=options.all)
            else:
                assert name is not None, "checked above"
                await _alter(cluster, ConfigResource(kind, name), changes)

    run(work())


async def _of_users(
    servers: str, name: str | None, changes: dict[Mechanism, NewPassword | None]
) -> None:
    """Describe users, or change the credentials of one."""
    async with open_cluster(servers) as cluster:
        if not changes:
            names = [] if name is None else [name]
            for user, found in sorted((await describe_users(cluster, names)).items()):
                out(user_line(user, found))
            return
        assert name is not None, "checked before"
        for mechanism, change in changes.items():
            if change is not None:
                users.check_password(name, change.password)
                await users.write_credential(
                    cluster, name, change.password, mechanism, change.iterations
                )
                continue
            try:
                await remove_credential(cluster, name, mechanism)
            except ApiError as error:
                raise CommandError(error.message, Exit.FAILED) from error
        out(f"Completed updating config for user {name}.")


def _entity(options: argparse.Namespace) -> tuple[str, str | None]:
    """Return the entity type and the entity's name; None for all."""
    short = {
        "topic": "topics",
        "broker": "brokers",
        "broker_logger": "broker-loggers",
        "client_metrics": "client-metrics",
        "group": "groups",
        "user": USERS,
    }
    chosen = [(kind, getattr(options, key)) for key, kind in short.items() if getattr(options, key)]
    if options.broker_defaults:
        chosen.append(("brokers", DEFAULT_NAME))
    if options.entity_type:
        name = DEFAULT_NAME if options.entity_default else options.entity_name
        chosen.append((options.entity_type, name))
    if options.entity_type in NOT_SUPPORTED:
        raise CommandError(f"{options.entity_type[:-1]} {WITHOUT_QUOTAS}", Exit.USAGE)
    if len(chosen) != 1:
        raise UsageFault("expected one --entity-type, or one of --topic, --broker, --group, …")
    kind, name = chosen[0]
    if kind != "brokers" and name == DEFAULT_NAME:
        raise UsageFault(f"{kind} have no default settings")
    return kind, name


def _changes(options: argparse.Namespace) -> dict[str, str | None]:
    changes: dict[str, str | None] = {}
    if options.add_config and options.add_config_file:
        raise UsageFault("Only one of --add-config or --add-config-file can be specified")
    if options.delete_config:
        changes.update(dict.fromkeys(name.strip() for name in options.delete_config.split(",")))
    if options.add_config:
        changes.update(_added(options.add_config))
    if options.add_config_file:
        changes.update(_settings_of_file(options.add_config_file))
    if not changes:
        raise UsageFault("--alter needs --add-config, --add-config-file or --delete-config")
    return changes


def _added(text: str) -> dict[str, str]:
    try:
        return configs.parse_settings(text)
    except CommandError:
        if without_passwords(text) == text:
            raise
        # The reason can quote the rest of a password with a comma.
        raise CommandError(
            "--add-config: expected key=value, or key=[a,b], and commas between; a password with a"
            " comma needs the form [password=P]",
            Exit.USAGE,
        ) from None


def _settings_of_file(path: str) -> dict[str, str]:
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise CommandError(f"{path}: {error.strerror}", Exit.USAGE) from error
    found: dict[str, str] = {}
    for line in lines:
        name, separator, value = line.partition("=")
        if separator and not name.lstrip().startswith(("#", "!")):
            found[name.strip()] = value.strip()
    return found


async def _describe(
    cluster: Cluster, kind: ResourceType, name: str | None, *, all_sources: bool
) -> None:
    names = [name] if name is not None else await configs.names_of(cluster, kind)
    for one in names:
        resource = ConfigResource(kind, one)
        try:
            found = await configs.describe(cluster, resource, all_sources=all_sources)
        except ApiError as error:
            raise CommandError(_own_words(resource, error), Exit.FAILED) from error
        except CommandError as error:
            if error.code != Exit.NOT_FOUND:
                raise
            out(str(error))
            raise AlreadyTold(error.code) from error
        out(head_of(resource, all_sources=all_sources))
        for line in lines_of(found):
            out(line)


def head_of(resource: ConfigResource, *, all_sources: bool) -> str:
    """Return the line above a resource's settings."""
    if resource.type is ResourceType.BROKER and resource.name == DEFAULT_NAME:
        return "Default configs for brokers in the cluster are:"
    which = "All" if all_sources else "Dynamic"
    return f"{which} configs for {_singular(resource.type)} {resource.name} are:"


def _singular(kind: ResourceType) -> str:
    if kind is ResourceType.CLIENT_METRICS:
        return "client-metric"
    return kind.name.lower().replace("_", "-")


def lines_of(settings: Settings) -> list[str]:
    """Return each setting with its source."""
    return [f"  {line_of(entry)}" for entry in settings.entries]


def line_of(entry: ConfigEntry) -> str:
    """Return one setting: its value, and all places that could set it."""
    synonyms = ", ".join(
        f"{configs.source_name(one.source)}:{one.name}={_text(one.value)}" for one in entry.synonyms
    )
    sensitive = str(entry.is_sensitive).lower()
    return f"{entry.name}={_text(entry.value)} sensitive={sensitive} synonyms={{{synonyms}}}"


def _text(value: str | None) -> str:
    return "null" if value is None else value


async def _alter(
    cluster: Cluster, resource: ConfigResource, changes: dict[str, str | None]
) -> None:
    try:
        await configs.alter(cluster, resource, changes)
    except ApiError as error:
        raise CommandError(_own_words(resource, error), Exit.FAILED) from error
    if resource.type is ResourceType.BROKER and resource.name == DEFAULT_NAME:
        out("Completed updating default config for brokers in the cluster.")
    else:
        out(f"Completed updating config for {_singular(resource.type)} {resource.name}.")


def _own_words(resource: ConfigResource, error: ApiError) -> str:
    """Return the broker's words, without the resource name that our client puts in front."""
    return error.message.removeprefix(f"{resource.type.name.lower()} {resource.name}: ")
