"""Applies committed metadata to the settings, the partitions and the coordinators of this node."""

from __future__ import annotations

import logging
from collections.abc import Callable

from broker.config import BROKER_ROWS, BrokerConfig, InForce
from broker.controller.controller import Controller
from broker.metadata.image import (
    OFFSETS_TOPIC,
    TRANSACTIONS_TOPIC,
    MetadataDelta,
    MetadataImage,
)
from broker.metadata.records import BROKER_RESOURCE
from broker.node.listeners import Listeners
from broker.node.parts import BrokerParts
from broker.settings import nearest
from protocol.log import escape

logger = logging.getLogger(__name__)


class NodePublisher:
    """Applies the commits of the metadata log to one node."""

    def __init__(
        self,
        own_config: BrokerConfig,
        controller: Controller,
        parts: BrokerParts,
        listeners: Listeners,
    ) -> None:
        """`own_config` is the configuration file's content at the start of the node."""
        self._own_config = own_config
        self._controller = controller
        self._parts = parts
        self._listeners = listeners

    def apply(self, delta: MetadataDelta, image: MetadataImage, done: Callable[[], None]) -> None:
        """Give the partitions of a commit their new roles, logs and settings, then call `done`."""
        self._parts.replicas.apply(delta, image, done)

    def published(self, delta: MetadataDelta) -> None:
        """Update settings and coordinators, because the image with this delta is now in force."""
        parts = self._parts
        if delta.changes_nodes:
            self._warn_of_unknown(delta.base, parts.metadata.image)
            reconfigure(self._own_config, parts.metadata.image, parts.settings, self._controller)
            parts.replicas.reconfigure(parts.metadata.image)
        if delta.credentials:
            self._listeners.sessions.end_logins(delta.credentials)
            self._listeners.open_to_users(parts.metadata.image.credentials)
        if delta.changes_quotas:
            self._listeners.use_quotas(parts.metadata.image.quotas)
        if delta.changes_acls:
            parts.fetches.rights_changed()
            parts.groups.rights_changed()
        if delta.removed:
            names = {topic.name for topic in delta.removed}
            parts.groups.topics_removed(names)
            parts.validator.first_refused.topics_removed(names)
        if OFFSETS_TOPIC in delta.touched:
            parts.groups.follow()
        if TRANSACTIONS_TOPIC in delta.touched:
            parts.transactions.follow()
        if delta.touched or delta.removed:
            parts.transactions.moved()
            parts.lost_leaders.give_due()

    def _warn_of_unknown(self, before: MetadataImage, image: MetadataImage) -> None:
        """Warn about settings of this node with unknown keys, because a key can be misspelled."""
        for name in ("", str(self._own_config.node_id)):
            known = before.settings(BROKER_RESOURCE, name)
            for key in image.settings(BROKER_RESOURCE, name):
                if key not in BROKER_ROWS and key not in known:
                    self._parts.metrics.warnings.warn(
                        logger,
                        "a setting has no effect, because the broker does not know it",
                        key=escape(key),
                        set_for=name or "all brokers",
                        meant=nearest(key, BROKER_ROWS).strip() or None,
                    )


def reconfigure(
    own_config: BrokerConfig, image: MetadataImage, settings: InForce, controller: Controller
) -> None:
    """Apply the node's configuration file and the settings in the metadata, which override it."""
    settings.config = controller.config = own_config.with_dynamic(
        image.settings(BROKER_RESOURCE, ""),
        image.settings(BROKER_RESOURCE, str(own_config.node_id)),
    )
