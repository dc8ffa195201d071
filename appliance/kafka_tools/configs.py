"""`kafka-configs`: describe and change settings of topics, brokers, groups and users."""

import argparse
from collections.abc import Sequence
from itertools import zip_longest
from pathlib import Path

from appliance.kafka import configs, users
from appliance.kafka.configs import DEFAULT_NAME, Settings
from appliance.kafka.session import open_cluster, run
from appliance.kafka_tools import quota_configs
from appliance.kafka_tools.base import (
    AlreadyTold,
    ToolParser,
    UsageFault,
    one_of,
    read_properties,
    run_tool,
    servers_of,
)
from appliance.kafka_tools.quota_configs import CLIENTS, IPS, QUOTA_KEYS, USERS
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
from protocol.security.scram import MECHANISMS, Mechanism

TYPES = {
    "topics": ResourceType.TOPIC,
    "brokers": ResourceType.BROKER,
    "broker-loggers": ResourceType.BROKER_LOGGER,
    "client-metrics": ResourceType.CLIENT_METRICS,
    "groups": ResourceType.GROUP,
}

Entity = tuple[str, str | None]
"""A type of entity, and the name of an entity. None stands for all names, and DEFAULT_NAME for the
default."""


SHORT = {
    "topic": "topics",
    "broker": "brokers",
    "broker-logger": "broker-loggers",
    "client-metrics": "client-metrics",
    "group": "groups",
    "user": USERS,
    "client": CLIENTS,
    "ip": IPS,
}
"""The options that name an entity, and the entity type of each."""

DEFAULTS = ("broker", "user", "client", "ip")
"""The options that name a default, without the ending of their names."""


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
    for flag in ("describe", "alter", "all", "force", *(f"{kind}-defaults" for kind in DEFAULTS)):
        add(f"--{flag}", action="store_true")
    add("--entity-type", action="append", choices=[*TYPES, USERS, CLIENTS, IPS])
    # The names belong to the types in the same order, so a default takes the position of a name.
    add("--entity-name", action="append", dest="entity_names")
    add("--entity-default", action="append_const", const=DEFAULT_NAME, dest="entity_names")
    for name in SHORT:
        add(f"--{name}")
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
    entities = _entities(options)
    entity_type, name = entities[0]
    changes = _changes(options) if action == "alter" else {}
    if action == "alter" and name is None:
        raise UsageFault("an entity name must be specified with --alter")
    servers = servers_of(options, read_properties(options.command_config))
    if entity_type in (USERS, CLIENTS, IPS):
        _of_clients(options, servers, entities, changes)
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


def _of_clients(
    options: argparse.Namespace,
    servers: str,
    entities: Sequence[Entity],
    changes: dict[str, str | None],
) -> None:
    """Describe or change quotas of users, clients and addresses, and credentials of users."""
    kinds = [kind for kind, _ in entities]
    of_user_alone = kinds == [USERS]
    _, name = entities[0]
    has_quotas = any(key in QUOTA_KEYS for key in changes)
    if of_user_alone and not has_quotas:
        credentials = credential_changes(changes)
        if credentials and name == DEFAULT_NAME:
            raise UsageFault(
                "The use of --entity-default or --user-defaults is not allowed with User SCRAM"
                " Credentials using --bootstrap-server."
            )
        if options.add_config:
            say("a password among the arguments can be read by others: use --add-config-file")
        if credentials:
            run(_of_users(servers, name, credentials))
            return
    elif of_user_alone and any(key in MECHANISMS for key in changes):
        raise UsageFault(
            "Cannot alter both quota and SCRAM credential configs simultaneously for 'users' using"
            " --bootstrap-server."
        )
    else:
        # Kafka names clients where a user is combined with a client.
        kind = IPS if kinds == [IPS] else CLIENTS
        quota_configs.refuse_others(kind, changes)
    wanted = quota_configs.quota_changes(changes)

    async def work() -> None:
        async with open_cluster(servers) as cluster:
            if wanted:
                await quota_configs.alter(cluster, entities, wanted)
                return
            await quota_configs.describe(cluster, entities)
        if of_user_alone and name != DEFAULT_NAME:
            await _of_users(servers, name, {})

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


def _entities(options: argparse.Namespace) -> list[Entity]:
    """Return the entity that the options name: one type and name, or a user and a client id."""
    types, names = options.entity_type or [], options.entity_names or []
    if len(names) > len(types):
        raise UsageFault("found more entity names than entity types")
    chosen: list[Entity] = list(zip_longest(types, names))
    for option, kind in SHORT.items():
        if name := getattr(options, option.replace("-", "_")):
            chosen.append((kind, name))
    chosen.extend(
        (SHORT[kind], DEFAULT_NAME) for kind in DEFAULTS if getattr(options, f"{kind}_defaults")
    )
    kinds = sorted(kind for kind, _ in chosen)
    if len(chosen) != 1 and kinds != [CLIENTS, USERS]:
        raise UsageFault("expected one --entity-type, or one of --topic, --broker, --group, …")
    for kind, name in chosen:
        if kind not in ("brokers", USERS, CLIENTS, IPS) and name == DEFAULT_NAME:
            raise UsageFault(f"{kind} have no default settings")
    return chosen


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
        # The error's text can contain the end of a password that has a comma, so do not show it.
        raise CommandError(
            "--add-config: expected key=value, or key=[a,b], and commas between; a password with a"
            " comma needs the form [password=P]",
            Exit.USAGE,
        ) from None


def _settings_of_file(path: str) -> dict[str, str]:
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise CommandError(f"{path} cannot be read: {error.strerror}", Exit.USAGE) from error
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
    """Return the line for one setting: its value, and all values that it could have from other
    sources."""
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
    """Return the broker's error text, without the resource name that our client puts in front."""
    return error.message.removeprefix(f"{resource.type.name.lower()} {resource.name}: ")
