"""Decides DeleteTopics and CreatePartitions.

This module is pure. Each topic of a request is decided separately, as in the module `topics`.
"""

from __future__ import annotations

from collections import Counter

from broker.config import BrokerConfig
from broker.controller.outcome import ControllerDecision
from broker.controller.placement import check_assignment
from broker.controller.topics import TopicBudget, each_once, new_partitions, refuse_repeated
from broker.metadata.image import MetadataImage, TopicImage
from broker.metadata.records import MetadataRecord, PartitionRecord, RemoveTopicRecord
from protocol.errors import ApiError, ErrorCode
from protocol.messages.topics import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from protocol.reassignment import original_replicas
from protocol.types import ZERO_UUID, Uuid


def delete_topics(
    request: DeleteTopicsRequest, image: MetadataImage, config: BrokerConfig
) -> ControllerDecision[DeleteTopicsResponse]:
    """Delete topics by name or, from version 6 on, by id.

    As in Kafka, a topic that the request names twice is not deleted, and the answer lists it once.
    If the request names it by name and by id, the answer lists it by name.
    """
    states = request.topics or [DeleteTopicState(name=name) for name in request.topic_names]
    asked = Counter((state.name, state.topic_id) for state in states)
    named = {
        image.topics[name].topic_id
        for (name, topic_id), count in asked.items()
        if name is not None and name in image.topics and topic_id == ZERO_UUID and count == 1
    }
    records: list[MetadataRecord] = []
    results = []
    for (name, topic_id), count in asked.items():
        if name is None and topic_id in named and count == 1 and config.delete_topic_enable:
            continue
        result = DeletableTopicResult(name=name, topic_id=topic_id)
        try:
            topic = _topic_to_delete(name, topic_id, count, image, config)
            result.name, result.topic_id = topic.name, topic.topic_id
            if name is not None and (None, topic.topic_id) in asked:
                raise ApiError(
                    ErrorCode.INVALID_REQUEST,
                    "The provided topic name maps to an ID that was already supplied.",
                )
            records.append(RemoveTopicRecord(topic_id=topic.topic_id))
        except ApiError as error:
            result.error_code, result.error_message = error.code, error.message
        results.append(result)
    return ControllerDecision(records, DeleteTopicsResponse(responses=results))


def _topic_to_delete(
    name: str | None, topic_id: Uuid, count: int, image: MetadataImage, config: BrokerConfig
) -> TopicImage:
    if not config.delete_topic_enable:
        raise ApiError(
            ErrorCode.TOPIC_DELETION_DISABLED,
            "topics cannot be deleted, because delete.topic.enable is false",
        )
    if name is None and topic_id == ZERO_UUID:
        raise ApiError(ErrorCode.INVALID_REQUEST, "Neither topic name nor id were specified.")
    if name is not None and topic_id != ZERO_UUID:
        raise ApiError(
            ErrorCode.INVALID_REQUEST, "You may not specify both topic name and topic id."
        )
    if count > 1:
        kind = "id" if name is None else "name"
        raise ApiError(ErrorCode.INVALID_REQUEST, f"Duplicate topic {kind}.")
    if name is None:
        found = image.topic_by_id(topic_id)
        if found is None:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_ID)
    else:
        found = image.topics.get(name)
        if found is None:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if found.is_internal:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"{found.name} is an internal topic, so you cannot delete it",
        )
    return found


def create_partitions(
    request: CreatePartitionsRequest, image: MetadataImage, config: BrokerConfig
) -> ControllerDecision[CreatePartitionsResponse]:
    """Handle CreatePartitions: add partitions until each topic has `count`.

    Each topic is answered once.
    """
    named = Counter(topic.name for topic in request.topics)
    budget = TopicBudget.of(image, config)
    records: list[MetadataRecord] = []
    results = []
    for topic in each_once(request.topics):
        result = CreatePartitionsTopicResult(name=topic.name, error_code=ErrorCode.NONE)
        try:
            refuse_repeated(named, topic.name)
            new = _growth(topic, image, budget)
            if not request.validate_only:
                records.extend(new)
        except ApiError as error:
            result.error_code, result.error_message = error.code, error.message
        results.append(result)
    return ControllerDecision(records, CreatePartitionsResponse(results=results))


def _growth(
    topic: CreatePartitionsTopic, image: MetadataImage, budget: TopicBudget
) -> list[PartitionRecord]:
    known = image.topics.get(topic.name)
    if known is None:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if known.is_internal:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"{known.name} is an internal topic, so you cannot change its number of partitions",
        )
    old_count = len(known.partitions)
    if topic.count == old_count:
        raise ApiError(ErrorCode.INVALID_PARTITIONS, f"Topic already has {old_count} partition(s).")
    if topic.count < old_count:
        raise ApiError(
            ErrorCode.INVALID_PARTITIONS,
            f"The topic {topic.name} currently has {old_count} partition(s); "
            f"{topic.count} would not be an increase.",
        )
    added = topic.count - old_count
    first = known.partitions[0]
    factor = len(original_replicas(first.replicas, first.adding_replicas))
    if topic.assignments is None:
        racks = budget.placer.candidates(factor)
        budget.take(0, added)
        replicas = budget.placer.place(racks, added, factor, known.partitions)
    else:
        replicas = [list(one.broker_ids) for one in topic.assignments]
        if len(replicas) != added or any(len(one) != factor for one in replicas):
            raise ApiError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"expected assignments for {added} new partitions, each with {factor} replicas",
            )
        for one in replicas:
            check_assignment(one, image, budget.placer.cordoned)
        budget.take(0, added)
    return list(new_partitions(known.topic_id, old_count, replicas, image))
