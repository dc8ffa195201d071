"""A cluster's metadata to try the controller on: one broker, orders decided and replayed."""

from random import Random
from typing import Any

from broker.config import BrokerConfig
from broker.controller.controller import Controller, ControllerInput
from broker.controller.outcome import ControllerDecision
from broker.controller.registration import Registration
from broker.metadata.image import MetadataDelta, MetadataImage
from broker.metadata.records import MetadataRecord, decode_record, encode_record
from protocol.messages.membership import BrokerRegistrationRequest, RegistrationListener
from protocol.messages.topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from protocol.types import Uuid


def broker_config(**settings: object) -> BrokerConfig:
    """A node's configuration; keys with `_` for `.`."""
    return BrokerConfig.from_json(
        {
            "part": "broker-1",
            "node_id": 1,
            "cluster_id": "bWlsbHJhY2UtdGVzdHMtMQ",
            "log_dir": "unused",
            "listeners": {
                "HOST": {
                    "host": "127.0.0.1",
                    "port": 9092,
                    "advertised_host": "127.0.0.1",
                    "advertised_port": 9092,
                }
            },
            "settings": {key.replace("_", "."): value for key, value in settings.items()},
        }
    )


def registration(
    node_id: int, listener: str = "HOST", host: str = "h", port: int = 9092, *, incarnation: int = 0
) -> Registration:
    """A broker begins its life, in service at once."""
    return Registration(
        BrokerRegistrationRequest(
            broker_id=node_id,
            incarnation_id=Uuid(int=incarnation or node_id),
            listeners=[RegistrationListener(name=listener, host=host, port=port)],
        )
    )


class Cluster:
    """Keeps the image as a metadata log would give it: every record goes through its encoding."""

    def __init__(self, brokers: tuple[int, ...] = (1,), **settings: object) -> None:
        self.config = broker_config(**settings)
        self.controller = Controller(self.config, Random(1))
        self.image = MetadataImage()
        for node_id in brokers:
            self.submit(registration(node_id))

    def decide(self, order: ControllerInput) -> ControllerDecision[Any]:
        """What the controller says, without any effect."""
        return self.controller.handle(order, self.image, 0)

    def submit(self, order: ControllerInput) -> Any:
        """Decide, commit, and return the reply."""
        outcome = self.decide(order)
        self.replay(outcome.records)
        return outcome.reply

    def replay(self, records: Any) -> None:
        """Take records in as the log would give them back."""
        read: list[MetadataRecord] = [decode_record(encode_record(one)) for one in records]
        end_offset = self.image.end_offset + len(read)
        self.image = MetadataDelta(self.image).replay_all(read).image(end_offset)

    def create(self, name: str, partitions: int = 1, **settings: str) -> Any:
        """Make a topic; returns its part of the answer."""
        reply = self.submit(create_request(name, partitions, **settings))
        return reply.topics[0]


def create_request(name: str, partitions: int = 1, **settings: str) -> CreateTopicsRequest:
    """A CreateTopics of one topic; keys of settings with `_` for `.`."""
    configs = [
        CreatableTopicConfig(name=key.replace("_", "."), value=value)
        for key, value in settings.items()
    ]
    topic = CreatableTopic(
        name=name, num_partitions=partitions, replication_factor=-1, configs=configs
    )
    return CreateTopicsRequest(topics=[topic])
