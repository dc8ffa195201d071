"""Deletes records of a mill's topics, as retention does. The argument has the offset of each
partition up to which records are deleted: `{"topic": {"0": 7}}`.

This is a process of its own, because only a process sees the names of a mill on several hosts.
"""

import json
import sys

from appliance.cli import context
from appliance.kafka.session import open_cluster, run
from appliance.mill.entry import cluster_entry
from protocol.client.log_admin import delete_records
from protocol.types import TopicPartition


def main(text: str) -> int:
    """Delete the records. Return 1 if a broker refuses."""
    wanted = {
        TopicPartition(topic, int(partition)): offset
        for topic, partitions in json.loads(text).items()
        for partition, offset in partitions.items()
    }

    async def work() -> bool:
        async with open_cluster(cluster_entry(context.mill_as_it_runs())) as cluster:
            return await delete_records(cluster, wanted) == wanted

    return 0 if run(work()) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
