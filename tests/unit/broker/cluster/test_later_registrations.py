"""For how long other brokers are registered, as a process sees them that registered before."""

from __future__ import annotations

from broker.cluster.later_registrations import LaterRegistrations
from broker.metadata.broker_image import BrokerImage
from broker.metadata.image import MetadataImage
from protocol.types import Uuid

OWN, BEFORE = Uuid(int=10), Uuid(int=9)


def image(*brokers: tuple[int, Uuid, int]) -> MetadataImage:
    """Return an image with brokers: id, incarnation and broker epoch."""
    return MetadataImage(
        brokers={
            node_id: BrokerImage(node_id, incarnation, epoch, {}, None, is_fenced=False)
            for node_id, incarnation, epoch in brokers
        }
    )


def test_only_registrations_after_this_process_have_an_age() -> None:
    later = LaterRegistrations(1, OWN)
    old = (2, Uuid(int=20), 30)
    # The log is replayed from the time before this process: nothing in it happened just now.
    later.moved(image((1, BEFORE, 20), old, (3, Uuid(int=30), 40)), 1_000)
    later.moved(image((1, OWN, 50), old, (3, Uuid(int=30), 40)), 1_500)
    assert later.ages_ms(2_000) == {}
    later.moved(image((1, OWN, 50), old, (3, Uuid(int=31), 60)), 3_000)
    later.moved(image((1, OWN, 50), old, (3, Uuid(int=31), 60)), 5_000)
    assert later.ages_ms(7_000) == {3: 4_000}


def test_a_second_registration_begins_the_age_again() -> None:
    later = LaterRegistrations(1, OWN)
    later.moved(image((1, OWN, 50), (2, Uuid(int=20), 60)), 1_000)
    later.moved(image((1, OWN, 50), (2, Uuid(int=21), 70)), 4_000)
    assert later.ages_ms(9_000) == {2: 5_000}
