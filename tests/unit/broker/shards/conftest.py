"""A broker with one transactional producer."""

from collections.abc import Iterator

import pytest

from tests.unit.broker.rig import Rig
from tests.unit.broker.txn_rig import TxnProducer, txn_rig


@pytest.fixture
def rig() -> Iterator[Rig]:
    with txn_rig() as rig:
        yield rig


@pytest.fixture
def producer(rig: Rig) -> TxnProducer:
    """Return a producer that has its producer id."""
    return TxnProducer(rig).ready()
