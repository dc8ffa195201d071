"""`kafka-broker-api-versions`: shows which requests each broker supports, in which versions."""

import argparse
from collections.abc import Sequence

from appliance.kafka.session import open_cluster, run
from appliance.kafka.versions import broker_versions, usable_version
from appliance.kafka_tools.base import ToolParser, read_properties, run_tool, servers_of
from appliance.output import CommandError, Exit, out, say
from protocol.errors import ApiError

# Kafka's names of the requests that its clients can send to a broker, as of 4.3.
NAMES = {
    0: "Produce", 1: "Fetch", 2: "ListOffsets", 3: "Metadata", 8: "OffsetCommit",
    9: "OffsetFetch", 10: "FindCoordinator", 11: "JoinGroup", 12: "Heartbeat", 13: "LeaveGroup",
    14: "SyncGroup", 15: "DescribeGroups", 16: "ListGroups", 17: "SaslHandshake",
    18: "ApiVersions", 19: "CreateTopics", 20: "DeleteTopics", 21: "DeleteRecords",
    22: "InitProducerId", 23: "OffsetForLeaderEpoch", 24: "AddPartitionsToTxn",
    25: "AddOffsetsToTxn", 26: "EndTxn", 27: "WriteTxnMarkers", 28: "TxnOffsetCommit",
    29: "DescribeAcls", 30: "CreateAcls", 31: "DeleteAcls", 32: "DescribeConfigs",
    33: "AlterConfigs", 34: "AlterReplicaLogDirs", 35: "DescribeLogDirs", 36: "SaslAuthenticate",
    37: "CreatePartitions", 38: "CreateDelegationToken", 39: "RenewDelegationToken",
    40: "ExpireDelegationToken", 41: "DescribeDelegationToken", 42: "DeleteGroups",
    43: "ElectLeaders", 44: "IncrementalAlterConfigs", 45: "AlterPartitionReassignments",
    46: "ListPartitionReassignments", 47: "OffsetDelete", 48: "DescribeClientQuotas",
    49: "AlterClientQuotas", 50: "DescribeUserScramCredentials",
    51: "AlterUserScramCredentials", 55: "DescribeQuorum", 57: "UpdateFeatures",
    60: "DescribeCluster", 61: "DescribeProducers", 64: "UnregisterBroker",
    65: "DescribeTransactions", 66: "ListTransactions", 68: "ConsumerGroupHeartbeat",
    69: "ConsumerGroupDescribe", 71: "GetTelemetrySubscriptions", 72: "PushTelemetry",
    74: "ListConfigResources", 75: "DescribeTopicPartitions", 76: "ShareGroupHeartbeat",
    77: "ShareGroupDescribe", 78: "ShareFetch", 79: "ShareAcknowledge", 80: "AddRaftVoter",
    81: "RemoveRaftVoter", 83: "InitializeShareGroupState", 84: "ReadShareGroupState",
    85: "WriteShareGroupState", 86: "DeleteShareGroupState", 87: "ReadShareGroupStateSummary",
    88: "StreamsGroupHeartbeat", 89: "StreamsGroupDescribe", 90: "DescribeShareGroupOffsets",
    91: "AlterShareGroupOffsets", 92: "DeleteShareGroupOffsets",
}  # fmt: skip


def main(arguments: Sequence[str]) -> int:
    """Run the tool."""
    return run_tool(_parser(), arguments, _work)


def _parser() -> ToolParser:
    parser = ToolParser("broker-api-versions", "Show which requests each broker answers.")
    parser.connects()
    return parser


def _work(options: argparse.Namespace) -> None:
    servers = servers_of(options, read_properties(options.command_config))

    async def work() -> None:
        failed = False
        async with open_cluster(servers) as cluster:
            for one in await broker_versions(cluster):
                broker = one.broker
                rack = broker.rack or "null"
                place = f"(id: {broker.node_id} rack: {rack} isFenced: false)"
                head = f"{broker.host}:{broker.port} {place}"
                if isinstance(one.ranges, dict):
                    out(f"{head} -> (")
                    out(",\n".join(f"\t{line}" for line in lines_of(one.ranges)))
                    out(")")
                else:
                    failed = True
                    words = one.ranges.message if isinstance(one.ranges, ApiError) else one.ranges
                    say(f"{head} -> ERROR: {words}")
        if failed:
            raise CommandError("not every broker has answered", Exit.FAILED)

    run(work())


def lines_of(ranges: dict[int, range]) -> list[str]:
    """Return one line for each request that Kafka knows, and for each request that only the broker
    knows."""
    lines = []
    for api_key in sorted({*NAMES, *ranges}):
        name = f"{NAMES.get(api_key, 'UNKNOWN')}({api_key})"
        offered = ranges.get(api_key)
        if offered is None:
            lines.append(f"{name}: UNSUPPORTED")
            continue
        first, last = offered[0], offered[-1]
        shown = f"{first}" if first == last else f"{first} to {last}"
        usable = usable_version(api_key, offered)
        lines.append(f"{name}: {shown} [usable: {'none' if usable is None else usable}]")
    return lines
