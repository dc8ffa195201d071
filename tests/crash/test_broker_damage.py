"""Files in the data folder are damaged or missing. The broker starts, or names the file because of
which it refuses to start."""

import shutil
from pathlib import Path

import pytest

from tests.harness.broker import BrokerProcess
from tests.harness.wire import WireClient, create, produce

pytestmark = pytest.mark.live


def with_records(folder: Path) -> BrokerProcess:
    """Return a broker that was killed after it had stored records."""
    broker = BrokerProcess(folder)
    with broker:
        with WireClient(broker.bootstrap) as client:
            create(client, "kept")
            produce(client, "kept", b"value")
        broker.kill9()
    return broker


def test_partitions_without_metadata_are_refused(tmp_path: Path) -> None:
    broker = with_records(tmp_path)
    shutil.rmtree(broker.log_dir / "__cluster_metadata-0")
    before = sorted(one.name for one in broker.log_dir.iterdir())
    with pytest.raises(SystemExit, match=r"no __cluster_metadata-0.*put that folder back"):
        broker.start()
    assert sorted(one.name for one in broker.log_dir.iterdir()) == before


@pytest.mark.parametrize(
    "name",
    [
        "recovery-point-offset-checkpoint",
        "log-start-offset-checkpoint",
        "replication-offset-checkpoint",
    ],
)
def test_a_broken_checkpoint_is_named_with_its_remedy(tmp_path: Path, name: str) -> None:
    broker = with_records(tmp_path)
    path = broker.log_dir / name
    path.write_bytes(b"\xff\0 no checkpoint")
    with pytest.raises(SystemExit, match=rf"{name}.*is not a valid checkpoint"):
        broker.start()
    path.unlink()
    with broker, WireClient(broker.bootstrap) as client:
        assert produce(client, "kept", b"next") == 1
