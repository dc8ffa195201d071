"""The metadata of a one-broker cluster for controller tests, which replay every decision."""

from random import Random
from typing import Any

from broker.config import BrokerConfig
from broker.controller.controller import Controller, ControllerInput
from broker.controller.outcome import ControllerDecision
from broker.controller.registration import Registration
from broker.metadata.features import supported_features
from broker.metadata.image import MetadataDelta, MetadataImage
from broker.metadata.records import MetadataRecord, decode_record, encode_record
from protocol.messages.membership import BrokerRegistrationRequest, RegistrationListener
from protocol.messages.topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from protocol.types import Uuid
from tests.unit.broker.security.acls import NotedDenials


def broker_config(**settings: object) -> BrokerConfig:
    """Return a broker's configuration. Keys have `_` in place of `.`."""
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
    """Return the order that registers a broker."""
    return Registration(
        BrokerRegistrationRequest(
            broker_id=node_id,
            incarnation_id=Uuid(int=incarnation or node_id),
            listeners=[RegistrationListener(name=listener, host=host, port=port)],
            features=supported_features(),
        )
    )


class Cluster:
    """A cluster that updates its image as a metadata log does: every record is encoded and
    decoded."""

    def __init__(self, brokers: tuple[int, ...] = (1,), **settings: object) -> None:
        self.config = broker_config(**settings)
        self.controller = Controller(self.config, Random(1), NotedDenials())
        self.image = MetadataImage()
        for node_id in brokers:
            self.submit(registration(node_id))

    def decide(self, order: ControllerInput) -> ControllerDecision[Any]:
        """Return the controller's decision without applying it."""
        return self.controller.handle(order, self.image, 0)

    def submit(self, order: ControllerInput) -> Any:
        """Decide the order, replay the records of the decision, and return its reply."""
        outcome = self.decide(order)
        self.replay(outcome.records)
        return outcome.reply

    def replay(self, records: Any) -> None:
        """Replay records after a round trip through their encoding."""
        read: list[MetadataRecord] = [decode_record(encode_record(one)) for one in records]
        end_offset = self.image.end_offset + len(read)
        self.image = MetadataDelta(self.image).replay_all(read).image(end_offset)

    def create(self, name: str, partitions: int = 1, **settings: str) -> Any:
        """Create a topic. Return its part of the response."""
        reply = self.submit(create_request(name, partitions, **settings))
        return reply.topics[0]


def create_request(name: str, partitions: int = 1, **settings: str) -> CreateTopicsRequest:
    """Return a CreateTopics request for one topic. Keys of settings have `_` in place of `.`."""
    configs = [
        CreatableTopicConfig(name=key.replace("_", "."), value=value)
        for key, value in settings.items()
    ]
    topic = CreatableTopic(
        name=name, num_partitions=partitions, replication_factor=-1, configs=configs
    )
    return CreateTopicsRequest(topics=[topic])
