"""The tables that map each request to its handler, for clients and for other brokers."""

from __future__ import annotations

from collections.abc import Mapping

from broker.cluster.birth_driver import BirthDriver
from broker.cluster.liveness_driver import LivenessDriver
from broker.cluster.messenger import LinkMessenger
from broker.cluster.metadata import Metadata
from broker.handlers.acls import AclHandlers
from broker.handlers.admin import TopicHandlers
from broker.handlers.cluster import ClusterHandlers
from broker.handlers.configs import ConfigHandlers
from broker.handlers.credentials import CredentialHandlers
from broker.handlers.group_admin import GroupAdminHandlers
from broker.handlers.group_membership import MembershipHandlers
from broker.handlers.groups import OffsetHandlers
from broker.handlers.login import LoginHandlers
from broker.handlers.placement import PlacementHandlers
from broker.handlers.quorum import QuorumHandlers
from broker.handlers.quotas import QuotaHandlers
from broker.handlers.reassignments import ReassignmentHandlers
from broker.handlers.records import RecordHandlers
from broker.handlers.topic_metadata import MetadataHandlers
from broker.handlers.topic_pages import TopicPageHandlers
from broker.handlers.transactions import TransactionHandlers
from broker.handlers.txn_admin import TransactionAdminHandlers
from broker.handlers.txn_offsets import TxnOffsetHandlers
from broker.interbroker.envelope import envelope_handlers
from broker.interbroker.membership import membership_handlers
from broker.interbroker.partitions import partition_handlers
from broker.interbroker.quorum import quorum_handlers
from broker.interbroker.transactions import MarkerHandler
from broker.interbroker.versions import version_handlers
from broker.node.parts import BrokerParts
from broker.sessions.dispatch import Handler
from broker.sessions.versions import OWN_VERSIONS
from protocol.messages.api import ApiKey


def client_table(parts: BrokerParts) -> Mapping[ApiKey, Handler]:
    """Return the handlers for clients. The other parts of the mill are clients too."""
    return {**_of_records(parts), **_of_groups(parts), **_of_cluster(parts)}


def _of_records(parts: BrokerParts) -> dict[ApiKey, Handler]:
    """Return the handlers for Produce, Fetch and transactions."""
    records = RecordHandlers(parts.replicas, parts.checkpoints, parts.waits, parts.clock)
    transactions = TransactionHandlers(
        parts.producer_ids,
        parts.transactions,
        parts.clock,
        parts.metadata,
        parts.groups,
    )
    txn_offsets = TxnOffsetHandlers(parts.groups, parts.verifier, parts.clock)
    txn_admin = TransactionAdminHandlers(parts.replicas, parts.transactions, parts.clock)
    markers = MarkerHandler(parts.replicas, parts.clock, parts.markers.write)
    return {
        ApiKey.PRODUCE: parts.produces.append,
        ApiKey.FETCH: parts.fetches.start,
        ApiKey.LIST_OFFSETS: parts.listings.start,
        ApiKey.DELETE_RECORDS: records.delete_records,
        ApiKey.INIT_PRODUCER_ID: transactions.init_producer_id,
        ApiKey.OFFSET_FOR_LEADER_EPOCH: records.offset_for_leader_epoch,
        ApiKey.ADD_PARTITIONS_TO_TXN: transactions.add_partitions_to_txn,
        ApiKey.ADD_OFFSETS_TO_TXN: transactions.add_offsets_to_txn,
        ApiKey.END_TXN: transactions.end_txn,
        ApiKey.TXN_OFFSET_COMMIT: txn_offsets.txn_offset_commit,
        ApiKey.WRITE_TXN_MARKERS: markers.write_txn_markers,
        ApiKey.DESCRIBE_PRODUCERS: txn_admin.describe_producers,
        ApiKey.DESCRIBE_TRANSACTIONS: txn_admin.describe_transactions,
        ApiKey.LIST_TRANSACTIONS: txn_admin.list_transactions,
    }


def _of_groups(parts: BrokerParts) -> dict[ApiKey, Handler]:
    """Return the handlers for consumer groups and their offsets."""
    group_admin = GroupAdminHandlers(parts.groups, parts.metadata)
    group_membership = MembershipHandlers(parts.groups)
    groups = OffsetHandlers(parts.groups)
    return {
        ApiKey.OFFSET_COMMIT: groups.offset_commit,
        ApiKey.OFFSET_FETCH: groups.offset_fetch,
        ApiKey.JOIN_GROUP: group_membership.join_group,
        ApiKey.HEARTBEAT: group_membership.heartbeat,
        ApiKey.LEAVE_GROUP: group_membership.leave_group,
        ApiKey.SYNC_GROUP: group_membership.sync_group,
        ApiKey.DESCRIBE_GROUPS: group_admin.describe_groups,
        ApiKey.LIST_GROUPS: group_admin.list_groups,
        ApiKey.DELETE_GROUPS: group_admin.delete_groups,
        ApiKey.OFFSET_DELETE: group_admin.offset_delete,
    }


def _of_cluster(parts: BrokerParts) -> dict[ApiKey, Handler]:
    """Return the handlers for topics, brokers, leaders and settings."""
    admin = TopicHandlers(parts.metadata, parts.settings)
    cluster = ClusterHandlers(
        parts.metadata, parts.settings, parts.groups, parts.transactions, parts.lost_leaders
    )
    topic_metadata = MetadataHandlers(parts.metadata, parts.settings, parts.lost_leaders)
    configs = ConfigHandlers(parts.metadata, parts.settings)
    placement = PlacementHandlers(parts.replicas, parts.settings, parts.metadata)
    quorum = QuorumHandlers(parts.metadata)
    reassignments = ReassignmentHandlers(parts.metadata)
    topic_pages = TopicPageHandlers(parts.metadata)
    acls = AclHandlers(parts.metadata)
    credentials = CredentialHandlers(parts.metadata)
    quotas = QuotaHandlers(parts.metadata)
    login = LoginHandlers(
        parts.metadata, parts.settings, parts.world, parts.metrics.warnings, parts.audit
    )
    return {
        ApiKey.METADATA: topic_metadata.metadata,
        ApiKey.FIND_COORDINATOR: cluster.find_coordinator,
        ApiKey.API_VERSIONS: cluster.api_versions,
        ApiKey.CREATE_TOPICS: admin.create_topics,
        ApiKey.DELETE_TOPICS: admin.delete_topics,
        ApiKey.DESCRIBE_ACLS: acls.describe,
        ApiKey.CREATE_ACLS: acls.create,
        ApiKey.DELETE_ACLS: acls.delete,
        ApiKey.DESCRIBE_CONFIGS: configs.describe_configs,
        ApiKey.ALTER_CONFIGS: configs.alter_configs,
        ApiKey.ALTER_REPLICA_LOG_DIRS: placement.alter_replica_log_dirs,
        ApiKey.DESCRIBE_LOG_DIRS: placement.describe_log_dirs,
        ApiKey.CREATE_PARTITIONS: admin.create_partitions,
        ApiKey.ELECT_LEADERS: placement.elect_leaders,
        ApiKey.INCREMENTAL_ALTER_CONFIGS: configs.incremental_alter_configs,
        ApiKey.ALTER_PARTITION_REASSIGNMENTS: reassignments.alter_partition_reassignments,
        ApiKey.LIST_PARTITION_REASSIGNMENTS: reassignments.list_partition_reassignments,
        ApiKey.SASL_HANDSHAKE: login.handshake,
        ApiKey.SASL_AUTHENTICATE: login.authenticate,
        ApiKey.DESCRIBE_CLIENT_QUOTAS: quotas.describe,
        ApiKey.ALTER_CLIENT_QUOTAS: quotas.alter,
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: credentials.describe,
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS: credentials.alter,
        ApiKey.DESCRIBE_QUORUM: quorum.describe_quorum,
        ApiKey.UPDATE_FEATURES: quorum.update_features,
        ApiKey.UNREGISTER_BROKER: quorum.unregister_broker,
        ApiKey.ADD_RAFT_VOTER: quorum.add_raft_voter,
        ApiKey.REMOVE_RAFT_VOTER: quorum.remove_raft_voter,
        ApiKey.DESCRIBE_CLUSTER: cluster.describe_cluster,
        ApiKey.LIST_CONFIG_RESOURCES: configs.list_config_resources,
        ApiKey.DESCRIBE_TOPIC_PARTITIONS: topic_pages.describe_topic_partitions,
    }


def quorum_table(messenger: LinkMessenger, birth: BirthDriver) -> Mapping[ApiKey, Handler]:
    """Return the handlers that other brokers need before a cluster can begin."""
    return {
        **quorum_handlers(messenger),
        **version_handlers(OWN_VERSIONS),
        ApiKey.REPLICA_REPORT: birth.asked,
    }


def controller_table(metadata: Metadata, liveness: LivenessDriver) -> Mapping[ApiKey, Handler]:
    """Return the handlers of the controller. Nodes that are not the controller answer
    NOT_CONTROLLER."""
    return {
        **envelope_handlers(metadata),
        **membership_handlers(liveness, metadata.controller),
        **partition_handlers(metadata.controller),
    }
