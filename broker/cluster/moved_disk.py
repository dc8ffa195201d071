"""Finds moved disks when a broker starts, and marks a disk that was moved alone.

`moves` decides which disks were moved alone. The mark is needed because the broker registers at its
new address before it has caught up. If it then restarts, its log no longer shows the move.
"""

from __future__ import annotations

import logging
from dataclasses import replace

from broker.cluster import quorum_state
from broker.cluster.found import listed
from broker.cluster.liveness_driver import broker_address
from broker.cluster.metadata_log import MetadataLog
from broker.cluster.moves import AddressBook, MovedBroker, MovedBrokers, find_moves
from broker.cluster.quorum_state import QuorumState
from broker.config import BROKER_LISTENER, BrokerConfig
from broker.metadata.broker_image import registered_broker
from broker.metadata.records import (
    MetadataRecord,
    RegisterBrokerRecord,
    UnregisterBrokerRecord,
)
from broker.quorum.voters import ReplicaKey
from broker.storage.disk import Disk
from broker.storage.dropped import unlink_if_there
from broker.world import Address
from protocol.log import fields

MARK = "moved-alone"
"""The name of the file that is the mark. It has the addresses before and after the move, with a
space between them."""

logger = logging.getLogger(__name__)


def look(
    disk: Disk, log: MetadataLog, state: QuorumState | None, me: ReplicaKey, config: BrokerConfig
) -> MovedBrokers:
    """Return the moves that the log and the mark show. Mark a disk that was moved alone, durably.

    The caller must call `forget` when such a disk has caught up.
    """
    if state is None or BROKER_LISTENER not in config.listeners:
        return MovedBrokers()
    path = f"{log.log.folder}/{MARK}"
    own = config.listeners[BROKER_LISTENER]
    configured = {one: Address(*where) for one, where in config.voters.items()}
    configured[me.node_id] = Address(own.advertised_host, own.advertised_port)
    voter_ids = [key.node_id for key in state.voters.latest]
    moves = find_moves(me.node_id, voter_ids, _address_book(log, state, me), configured)
    if moves.leaves_no_majority:
        logger.warning(
            "too many voters were moved together, so no controller can be elected; start one of "
            "them at its old address first",
            extra=fields(moved=listed(moves.voters)),
        )
    if moves.own is None:
        moves = replace(moves, own=_marked(disk, path, me.node_id, configured[me.node_id]))
    if moves.own is None:
        unlink_if_there(disk, path)
        return moves
    disk.replace(path, f"{moves.own.before} {moves.own.now}".encode(), is_durable=True)
    logger.warning(
        "data folder was used at another address and can be an old copy; this broker does not vote "
        "until it has all records of the controller",
        extra=fields(before=moves.own.before, now=moves.own.now),
    )
    return moves


def forget(disk: Disk, log: MetadataLog) -> None:
    """Remove the mark, because the disk has caught up."""
    path = f"{log.log.folder}/{MARK}"
    log.do(lambda: unlink_if_there(disk, path), lambda _: None, lambda: None)
    logger.info("data folder has all records of the controller, so this broker votes again")


def _address_book(log: MetadataLog, state: QuorumState, me: ReplicaKey) -> AddressBook:
    """Return the registrations in the snapshot and the log, including those that are not committed.

    Leave out a registration of this broker with another disk, because it says nothing about this
    disk.
    """
    book = AddressBook()
    for record in quorum_state.registrations_in_snapshot(state):
        _enter(record, book, me)
    book.end_snapshot()
    for record in quorum_state.registrations_since(log, state):
        _enter(record, book, me)
    return book


def _enter(record: MetadataRecord, book: AddressBook, me: ReplicaKey) -> None:
    match record:
        case RegisterBrokerRecord():
            broker = registered_broker(record)
            address = broker_address(broker)
            is_other_disk = broker.directory_ids and me.directory_id not in broker.directory_ids
            if address is None or (broker.node_id == me.node_id and is_other_disk):
                book.unregister(broker.node_id)
            else:
                book.register(broker.node_id, address)
        case UnregisterBrokerRecord(broker_id=node_id):
            book.unregister(node_id)


def _marked(disk: Disk, path: str, node_id: int, now: Address) -> MovedBroker | None:
    """Return the move in the mark. Return None without a mark, and if this broker was moved again
    after the mark was written."""
    if not disk.exists(path):
        return None
    before, _, marked = disk.read_all(path).decode(errors="replace").partition(" ")
    return MovedBroker(node_id, before, marked) if marked == str(now) else None
