"""The checks of a broker registration that do not depend on the broker's partitions.

This module is pure. Each check raises ApiError with both sides of the contradiction.
"""

from __future__ import annotations

from dataclasses import dataclass

from broker.metadata.broker_image import BrokerImage
from broker.metadata.features import METADATA_VERSION, UNNAMED, named, ranges_of
from broker.metadata.image import MetadataImage
from protocol.errors import ApiError, ErrorCode
from protocol.messages.membership import BrokerRegistrationRequest
from protocol.types import Uuid, uuid_to_base64


@dataclass(frozen=True, slots=True)
class RegistrationFacts:
    """The facts outside the image on which a registration depends.

    `is_live`: True if the registered incarnation with this broker id can still be running.
    `voter_directory`: the directory of this node in the voter set; None if the node is not a voter.
    """

    cluster_id: str
    is_live: bool
    voter_directory: Uuid | None


def refuse_foreign(request: BrokerRegistrationRequest, facts: RegistrationFacts) -> None:
    """Refuse a broker of another cluster."""
    if request.cluster_id != facts.cluster_id:
        raise ApiError(
            ErrorCode.INCONSISTENT_CLUSTER_ID,
            f"broker {request.broker_id} at {wanted_addresses(request)} belongs to cluster "
            f"{request.cluster_id}, but this is cluster {facts.cluster_id}. Correct the addresses "
            "of the brokers that it contacts, or give it this cluster's secrets and an empty "
            "folder",
        )


def refuse_level(request: BrokerRegistrationRequest, image: MetadataImage) -> None:
    """Refuse a broker that does not support the level of the metadata log (KIP-584)."""
    level = image.features.get(METADATA_VERSION)
    levels = ranges_of(request.features).get(METADATA_VERSION, UNNAMED)
    if level is None or level in levels:
        return
    way = (
        "run the version that the other brokers run, or a later one"
        if level > levels.newest
        else "upgrade over the version between them first"
    )
    raise ApiError(
        ErrorCode.UNSUPPORTED_VERSION,
        f"broker {request.broker_id} at {wanted_addresses(request)} supports {METADATA_VERSION} "
        f"{levels}, and this cluster is at {named(level)}: {way}",
    )


def refuse_directories(
    request: BrokerRegistrationRequest, image: MetadataImage, facts: RegistrationFacts
) -> None:
    """Refuse a broker whose data folder was copied, emptied or replaced."""
    if not request.log_dirs or len(set(request.log_dirs)) != len(request.log_dirs):
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"broker {request.broker_id} sent {len(request.log_dirs)} directory ids; expected at "
            "least one, and each only once",
        )
    here = wanted_addresses(request)
    for other in image.brokers.values():
        both = [one for one in request.log_dirs if one in other.directory_ids]
        if both and other.node_id != request.broker_id:
            raise ApiError(
                ErrorCode.INVALID_REQUEST,
                f"directory {uuid_to_base64(both[0])} belongs to broker {other.node_id} at "
                f"{addresses_of(other)}; broker {request.broker_id} at {here} has a copy of it and "
                "must start with another folder",
            )
    wanted = facts.voter_directory
    if wanted is not None and wanted not in request.log_dirs:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"broker {request.broker_id} is a voter with directory {uuid_to_base64(wanted)}, but "
            f"at {here} it has {uuid_to_base64(request.log_dirs[0])}: its folder was emptied "
            "or replaced. Restore the old one, or remove the voter and add it again",
        )


def addresses_of(broker: BrokerImage) -> str:
    """Return the addresses of a registered broker, for messages."""
    return ", ".join(f"{name}://{host}:{port}" for name, (host, port) in broker.listeners.items())


def wanted_addresses(request: BrokerRegistrationRequest) -> str:
    """Return the addresses of a broker that wants to register, for messages."""
    return ", ".join(f"{one.name}://{one.host}:{one.port}" for one in request.listeners)
