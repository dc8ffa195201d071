"""Which handler serves which API: the whole of what the broker answers."""

from __future__ import annotations

from collections.abc import Mapping

from broker.server.dispatch import Handler
from broker.server.handlers import admin, cluster, fetch, groups, produce
from protocol.messages.api import ApiKey

HANDLERS: Mapping[ApiKey, Handler] = {
    ApiKey.PRODUCE: produce.produce,
    ApiKey.FETCH: fetch.fetch,
    ApiKey.LIST_OFFSETS: fetch.list_offsets,
    ApiKey.METADATA: cluster.metadata,
    ApiKey.OFFSET_COMMIT: groups.offset_commit,
    ApiKey.OFFSET_FETCH: groups.offset_fetch,
    ApiKey.FIND_COORDINATOR: cluster.find_coordinator,
    ApiKey.DESCRIBE_GROUPS: groups.describe_groups,
    ApiKey.LIST_GROUPS: groups.list_groups,
    ApiKey.API_VERSIONS: cluster.api_versions,
    ApiKey.CREATE_TOPICS: admin.create_topics,
    ApiKey.DELETE_TOPICS: admin.delete_topics,
    ApiKey.INIT_PRODUCER_ID: produce.init_producer_id,
    ApiKey.DESCRIBE_CONFIGS: admin.describe_configs,
    ApiKey.CREATE_PARTITIONS: admin.create_partitions,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: admin.alter_configs,
    ApiKey.DESCRIBE_CLUSTER: cluster.describe_cluster,
}
