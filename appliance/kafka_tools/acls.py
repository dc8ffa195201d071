"""`kafka-acls`: list, add and remove ACLs."""

import argparse
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

from appliance.kafka.session import open_cluster, run
from appliance.kafka_tools.base import (
    ToolParser,
    UsageFault,
    read_properties,
    run_tool,
    servers_of,
)
from appliance.output import CommandError, Exit, out
from protocol.client.acl_admin import create_acls, delete_acls, describe_acls
from protocol.client.cluster import Cluster
from protocol.errors import ApiError
from protocol.security.acl import (
    CLUSTER_NAME,
    SUPPORTED_OPERATIONS,
    WILDCARD,
    AclEntry,
    AclFilter,
    AclOperation,
    AclPermission,
    AclResource,
    PatternType,
)

Pattern = tuple[AclResource, str, PatternType]
Access = tuple[str, str, AclOperation, AclPermission]
"""Principal, host, operation and permission of an ACL."""

ACTIONS = ("list", "add", "remove")
OPERATION_NAMES = {
    "".join(word.capitalize() for word in one.name.split("_")): one
    for one in AclOperation
    if one >= AclOperation.ALL
}
"""The operations in Kafka's spelling, such as DescribeConfigs."""

TOKEN_OPERATIONS = {
    AclResource.DELEGATION_TOKEN: (AclOperation.DESCRIBE,),
    AclResource.USER: (AclOperation.CREATE_TOKENS, AclOperation.DESCRIBE_TOKENS),
}
"""The operations on the resources of delegation tokens. ACLs with them have no effect in
Millrace."""

NO_RESOURCE = (
    "You must provide at least one resource: --topic <topic> or --cluster or --group <group>"
    " or --delegation-token <Delegation Token ID>"
)
CONSUMER_NEEDS = (
    "With --consumer you must specify a --topic and a --group and no --cluster or"
    " --transactional-id option should be specified."
)


def main(arguments: Sequence[str]) -> int:
    """Run the tool."""
    return run_tool(_parser(), arguments, _work)


def _parser() -> ToolParser:
    parser = ToolParser("acls", "This tool helps to manage acls on kafka.")
    parser.connects()
    parser.refuses("--bootstrap-controller", "is for Kafka's controllers; use --bootstrap-server")
    for action, text in (
        ("list", "List ACLs, all or for the specified resources."),
        ("add", "Indicates you are trying to add ACLs."),
        ("remove", "Indicates you are trying to remove ACLs."),
    ):
        parser.add_argument(f"--{action}", action="store_true", help=text)
    for option, text in (
        ("topic", "A topic; * for all topics."),
        ("group", "A consumer group; * for all groups."),
        ("transactional-id", "A transactional id; * for all."),
        ("delegation-token", "A delegation token; without effect here."),
        ("user-principal", "A user as a resource; without effect here."),
        ("operation", f"One of {', '.join(OPERATION_NAMES)}; All without this option."),
        ("allow-principal", "User:NAME, or User:* for all users."),
        ("deny-principal", "User:NAME, or User:* for all users."),
        ("allow-host", "With --allow-principal: an address; * without this option."),
        ("deny-host", "With --deny-principal: an address; * without this option."),
    ):
        parser.add_argument(f"--{option}", action="append", metavar="TEXT", help=text)
    parser.add_argument(
        "--principal", action="append", nargs="?", metavar="TEXT", help="With --list: User:NAME."
    )
    parser.add_argument("--cluster", action="store_true", help="The cluster itself.")
    parser.add_argument(
        "--idempotent", action="store_true", help="With --producer: IdempotentWrite."
    )
    parser.add_argument(
        "--producer", action="store_true", help="Write, Describe and Create for --topic."
    )
    parser.add_argument(
        "--consumer", action="store_true", help="Read and Describe for --topic, Read for --group."
    )
    parser.add_argument("--force", action="store_true", help="Do not ask.")
    parser.add_argument(
        "--resource-pattern-type",
        type=str.upper,
        choices=[one.name for one in PatternType if one],
        default=PatternType.LITERAL.name,
        metavar="ANY|MATCH|LITERAL|PREFIXED",
        help="How the resources are named; any and match are for --list and --remove.",
    )
    return parser


def _work(options: argparse.Namespace) -> int:
    servers = servers_of(options, read_properties(options.command_config))
    _check(options)
    if options.list:
        run(_with(servers, lambda cluster: _list(cluster, options)))
    elif options.add:
        wanted = _wanted(options)
        pattern_type = PatternType[options.resource_pattern_type]
        if pattern_type in (PatternType.ANY, PatternType.MATCH):
            text = f"A '--resource-pattern-type' value of '{pattern_type.name}'"
            raise UsageFault(f"{text} is not valid when adding acls.")
        if not all(wanted.values()):
            raise UsageFault(
                "You must specify one of: --allow-principal, --deny-principal when trying to add"
                " ACLs."
            )
        run(_with(servers, lambda cluster: _add(cluster, wanted)))
    else:
        wanted = _wanted(options)
        agreed = {
            pattern: accesses
            for pattern, accesses in wanted.items()
            if options.force or _is_agreed(pattern, accesses)
        }
        run(_with(servers, lambda cluster: _remove(cluster, agreed)))
    return Exit.OK


def _check(options: argparse.Namespace) -> None:
    """Raise UsageFault, with Kafka's text, for options that exclude each other."""
    if sum(getattr(options, action) for action in ACTIONS) != 1:
        raise UsageFault("Command must include exactly one action: --list, --add, --remove. ")
    principals = ("allow_host", "allow_principal", "deny_host", "deny_principal")
    _refuse(options, "list", ("producer", "consumer", *principals))
    for role in ("producer", "consumer"):
        _refuse(options, role, ("operation", "deny_principal", "deny_host"))
    if options.principal and not options.list:
        raise UsageFault("The --principal option is only available if --list is set")
    if options.producer and not options.topic:
        raise UsageFault("With --producer you must specify a --topic")
    if options.idempotent and not options.producer:
        raise UsageFault("The --idempotent option is only available if --producer is set")
    is_consumer_only = options.consumer and not options.producer
    if options.consumer and not (options.topic and options.group):
        raise UsageFault(CONSUMER_NEEDS)
    if is_consumer_only and (options.cluster or options.transactional_id):
        raise UsageFault(CONSUMER_NEEDS)


def _refuse(options: argparse.Namespace, used: str, others: Iterable[str]) -> None:
    if not getattr(options, used):
        return
    for other in others:
        if getattr(options, other):
            name = other.replace("_", "-")
            raise UsageFault(f'Option "[{used}]" can\'t be used with option "[{name}]"')


async def _with(servers: str, work: Callable[[Cluster], Awaitable[None]]) -> None:
    async with open_cluster(servers) as cluster:
        try:
            await work(cluster)
        except ApiError as error:
            text = f"Error while executing ACL command: {error.message}"
            raise CommandError(text) from error


def _patterns(options: argparse.Namespace) -> list[Pattern]:
    """Return the resources that the options name."""
    pattern_type = PatternType[options.resource_pattern_type]
    named: list[tuple[AclResource, Sequence[str] | None]] = [
        (AclResource.TOPIC, options.topic),
        (AclResource.GROUP, options.group),
        (AclResource.TRANSACTIONAL_ID, options.transactional_id),
        (AclResource.DELEGATION_TOKEN, options.delegation_token),
        (AclResource.USER, options.user_principal),
    ]
    found = [(kind, name.strip(), pattern_type) for kind, names in named for name in names or ()]
    if pattern_type is PatternType.LITERAL and (options.cluster or options.idempotent):
        found.append((AclResource.CLUSTER, CLUSTER_NAME, PatternType.LITERAL))
    return list(dict.fromkeys(found))


def _wanted(options: argparse.Namespace) -> dict[Pattern, list[Access]]:
    """Return the ACLs that the options describe, by resource. Raises UsageFault."""
    patterns = _patterns(options)
    if not patterns:
        raise UsageFault(NO_RESOURCE)
    write, describe = AclOperation.WRITE, AclOperation.DESCRIBE
    roles: list[tuple[AclResource, tuple[AclOperation, ...]]] = []
    if options.producer:
        roles.append((AclResource.TOPIC, (write, describe, AclOperation.CREATE)))
        roles.append((AclResource.TRANSACTIONAL_ID, (write, describe)))
        if options.idempotent:
            roles.append((AclResource.CLUSTER, (AclOperation.IDEMPOTENT_WRITE,)))
    if options.consumer:
        roles.append((AclResource.TOPIC, (AclOperation.READ, describe)))
        roles.append((AclResource.GROUP, (AclOperation.READ,)))
    found: dict[Pattern, list[Access]] = {}
    if not roles:
        accesses = _accesses(options, _operations(options))
        found = dict.fromkeys(patterns, accesses)
    for kind, operations in roles:
        for pattern in patterns:
            if pattern[0] is kind:
                before = found.get(pattern, [])
                found[pattern] = list(dict.fromkeys(before + _accesses(options, operations)))
    for (kind, _, _), accesses in found.items():
        known = {AclOperation.ALL, *(SUPPORTED_OPERATIONS | TOKEN_OPERATIONS)[kind]}
        if not {operation for _, _, operation, _ in accesses} <= known:
            names = ", ".join(sorted(one.name for one in known))
            raise UsageFault(f"AclResource {kind.name} only supports operations [{names}]")
    return found


def _operations(options: argparse.Namespace) -> list[AclOperation]:
    found = []
    for name in options.operation or ["All"]:
        folded = name.strip().lower().replace("_", "")
        known = {one.lower(): operation for one, operation in OPERATION_NAMES.items()}
        if folded not in known:
            raise UsageFault(f"found operation {name}, expected one of {list(OPERATION_NAMES)}")
        found.append(known[folded])
    return found


def _accesses(options: argparse.Namespace, operations: Iterable[AclOperation]) -> list[Access]:
    found: list[Access] = []
    for principals, hosts, permission in (
        (options.allow_principal, options.allow_host, AclPermission.ALLOW),
        (options.deny_principal, options.deny_host, AclPermission.DENY),
    ):
        found.extend(
            (_principal(principal), host.strip(), operation, permission)
            for principal in principals or ()
            for operation in operations
            for host in hosts or (WILDCARD,)
        )
    return list(dict.fromkeys(found))


def _principal(text: str) -> str:
    found = text.strip()
    if not all(found.partition(":")):
        text = f"expected a string in format principalType:principalName but got {found}"
        raise UsageFault(text)
    return found


def _shown(pattern: Pattern) -> str:
    kind, name, pattern_type = pattern
    return (
        f"ResourcePattern(resourceType={kind.name}, name={name}, patternType={pattern_type.name})"
    )


def _access_shown(access: Access) -> str:
    principal, host, operation, permission = access
    return (
        f"(principal={principal}, host={host}, operation={operation.name},"
        f" permissionType={permission.name})"
    )


def _lines(accesses: Iterable[Access]) -> str:
    return "\n".join(f"\t{_access_shown(one)}" for one in accesses)


def _split(entry: AclEntry) -> tuple[Pattern, Access]:
    kind, name, pattern_type, principal, host, operation, permission = entry
    return (kind, name, pattern_type), (principal, host, operation, permission)


def _entry(pattern: Pattern, access: Access) -> AclEntry:
    kind, name, pattern_type = pattern
    principal, host, operation, permission = access
    return AclEntry(kind, name, pattern_type, principal, host, operation, permission)


async def _list(cluster: Cluster, options: argparse.Namespace) -> None:
    filters = [AclFilter(*pattern) for pattern in _patterns(options)] or [AclFilter()]
    by_pattern: dict[Pattern, dict[Access, None]] = {}
    for wanted in filters:
        for entry in await describe_acls(cluster, wanted):
            pattern, access = _split(entry)
            by_pattern.setdefault(pattern, {})[access] = None
    if not options.principal:
        _print(by_pattern)
    for principal in dict.fromkeys(_principal(one or "") for one in options.principal or ()):
        out(f"ACLs for principal `{principal}`")
        own = {
            pattern: {access: None for access in accesses if access[0] == principal}
            for pattern, accesses in by_pattern.items()
        }
        _print({pattern: accesses for pattern, accesses in own.items() if accesses})


def _print(by_pattern: Mapping[Pattern, Iterable[Access]]) -> None:
    for pattern, accesses in by_pattern.items():
        out(f"Current ACLs for resource `{_shown(pattern)}`:\n{_lines(accesses)}\n")


async def _add(cluster: Cluster, wanted: dict[Pattern, list[Access]]) -> None:
    for pattern, accesses in wanted.items():
        existing = set(await describe_acls(cluster, AclFilter(*pattern)))
        missing = []
        for access in accesses:
            if _entry(pattern, access) in existing:
                out(
                    f"Acl (pattern={_shown(pattern)}, entry={_access_shown(access)}) already"
                    " exists."
                )
            else:
                missing.append(access)
        if missing:
            out(f"Adding ACLs for resource `{_shown(pattern)}`: \n {_lines(missing)}\n")
            await create_acls(cluster, [_entry(pattern, access) for access in missing])


def _is_agreed(pattern: Pattern, accesses: Sequence[Access]) -> bool:
    """Ask the user whether these ACLs may be removed. Return whether the user agrees."""
    question = f"Are you sure you want to delete all ACLs for resource filter `{_shown(pattern)}`?"
    if accesses:
        question = (
            f"Are you sure you want to remove ACLs: \n {_lines(accesses)}\n"
            f" from resource filter `{_shown(pattern)}`?"
        )
    out(f"{question} (y/n)")
    try:
        return input().strip().lower() == "y"
    except EOFError:
        return False


async def _remove(cluster: Cluster, agreed: dict[Pattern, list[Access]]) -> None:
    for pattern, accesses in agreed.items():
        exact = [AclFilter(*_entry(pattern, access)) for access in accesses]
        filters = exact or [AclFilter(*pattern)]
        await delete_acls(cluster, filters)
