"""The broker's answers to `/healthz`, `/status` and `/metrics`."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, NamedTuple

from broker.cluster.clocks import wrong_clocks
from broker.coordinators.txn_state import TxnState
from broker.node.cluster_status import (
    copies_details,
    copying_details,
    followed_of,
    membership_details,
    partition_details,
    tally_of,
)
from broker.node.listeners import has_super_user
from broker.node.waiting import clock_text, waits
from protocol.status import PartState, PartStatus, Problem
from protocol.types import NO_NODE, TopicPartition

if TYPE_CHECKING:
    from broker.node.broker import Broker

RATE_SAMPLE_MS = 1_000
RATE_SAMPLE_COUNT = 5
"""The number of counter samples that a rate covers. Samples are at least RATE_SAMPLE_MS apart."""

REFUSAL_SHOWN_MS = 30_000
"""The time in milliseconds for which a refused write is shown as a problem."""


class _Sample(NamedTuple):
    """The values of the counters at one monotonic time."""

    at_ms: int
    counts: dict[str, int]


class BrokerStatus:
    """Reads the state of one broker on each request."""

    def __init__(
        self,
        broker: Broker,
        started_at_ms: int,
        connection_problems: Callable[[], Sequence[Problem]] = tuple,
    ) -> None:
        """`connection_problems` returns the problems of connections between brokers, and those of
        the certificate for clients."""
        self._connection_problems = connection_problems
        self.state = PartState.STARTING
        self._broker = broker
        self._started_at_ms = started_at_ms
        self._samples: deque[_Sample] = deque(maxlen=RATE_SAMPLE_COUNT)

    def status(self) -> PartStatus:
        """Return the current state of the broker."""
        broker = self._broker
        problems = (
            *self._waits(),
            *self._connection_problems(),
            *(self._problems() if broker.is_serving else ()),
        )
        state = self.state
        if state is PartState.RUNNING and problems:
            state = PartState.DEGRADED
        return PartStatus(
            part=broker.config.part,
            state=state,
            # A broker of a cluster serves other brokers before it is in service for clients.
            ready=broker.is_serving and self.state is not PartState.STARTING,
            started_at_ms=self._started_at_ms,
            now_ms=broker.clock.now_ms(),
            problems=problems,
            details=self._quorum() | (self._details() if broker.is_serving else {}),
        )

    def _waits(self) -> list[Problem]:
        """Return the problem that this broker waits for other brokers; empty if it does not wait or
        is configured alone."""
        broker = self._broker
        joining = broker.joining
        if joining is None or len(broker.config.configured_ids) == 1:
            return []
        return waits(
            joining,
            broker.joined,
            broker.config.node_id,
            broker.clock.monotonic_ms(),
            is_serving=broker.is_serving,
        )

    def _problems(self) -> tuple[Problem, ...]:
        replicas = self._broker.parts.replicas
        own = self._broker.metadata.image.brokers.get(self._broker.config.node_id)
        problems = [
            Problem("partition_offline", f"{topic_partition}: {reason}")
            for topic_partition, reason in sorted((self._damaged() | replicas.unmade).items())
        ]
        problems += [
            Problem(
                "partition_damaged",
                f"{one.topic_partition}: {reason}; the broker still serves the readable records, "
                + (
                    "because no other broker is in sync: start the brokers that have a copy"
                    if one.is_shared
                    else "because this is the only copy: copy the readable records to another "
                    "topic, or stop the broker and replace the folder by an undamaged copy"
                ),
            )
            for one, reason in sorted(
                replicas.damaged.items(), key=lambda item: item[0].topic_partition
            )
        ]
        if own is None or own.is_fenced:
            problems.append(
                Problem(
                    "fenced", "this broker is out of service: other brokers lead its partitions"
                )
            )
        refused = self._broker.parts.metrics.last_write_failure
        if refused is not None and self._broker.clock.now_ms() - refused[0] < REFUSAL_SHOWN_MS:
            problems.append(
                Problem("write_refused", f"{refused[1]}; producers retry until the disk has room")
            )
        if self._broker.serving.is_out_of_room:
            problems.append(
                Problem(
                    "no_room_to_copy",
                    "the disk is nearly full, so copies of replicas pause: free some space, or "
                    "cancel the moves to this broker",
                )
            )
        return (*problems, *self._wrong_clocks(), *self._without_super_user())

    def _wrong_clocks(self) -> Iterator[Problem]:
        """Yield the problem of each broker whose clock differs from those of the others."""
        joining = self._broker.joining
        membership = None if joining is None else joining.membership
        # A broker without a connection to the controller has old readings.
        if membership is None or not membership.may_read:
            return
        brokers = self._broker.metadata.image.brokers
        for one in wrong_clocks(membership.clocks):
            yield Problem("clock_differs", clock_text(one, brokers))

    def _without_super_user(self) -> Iterator[Problem]:
        """Yield the problem that no super user can log in, or that a listener could not open."""
        broker = self._broker
        config, shut = broker.settings.config, broker.listeners.shut
        needing = [name for name, one in config.listeners.items() if one.needs_login]
        if not needing:
            return
        if has_super_user(broker.metadata.image.credentials, config):
            if shut:
                reason = "another process listens on its port: stop it"
                yield Problem("listener_shut", f"listener {', '.join(shut)} is shut: {reason}")
            return
        names = sorted(config.super_user_names)
        remedy = f"write one with `./millrace user add {names[0]}`" if names else "name one there"
        text = f"no user of super.users ({', '.join(names) or 'empty'}) has a password: {remedy}"
        if shut:
            yield Problem("listener_shut", f"listener {', '.join(shut)} is shut, because {text}")
        else:
            after = "the next start of this broker does not open listener"
            yield Problem("no_super_user", f"{text}; otherwise {after} {', '.join(needing)}")

    def _damaged(self) -> dict[TopicPartition, str]:
        """Return the partitions whose logs cannot be opened, each with the reason and what to
        do."""
        parts, me = self._broker.parts, self._broker.config.node_id
        image, offline = parts.metadata.image, dict(parts.replicas.logs.offline)
        for topic, index in offline if len(image.brokers) > 1 else ():
            known = image.topics.get(topic)
            if known is None or index >= len(known.partitions):
                continue
            if known.partitions[index].leader in (NO_NODE, me):
                offline[TopicPartition(topic, index)] += (
                    "; the folder is kept unchanged, because no other broker leads a copy: start "
                    "the brokers that have one, or replace the folder by a good copy and restart"
                )
        return offline

    def _quorum(self) -> dict[str, object]:
        """Return the state of the cluster. Before the broker has joined, return the brokers it
        waits for."""
        joining = self._broker.joining
        if joining is None:
            return {}
        metadata = self._broker.joined
        if metadata is None:
            return {"cluster_waits_for": joining.birth.waits_for}
        broker = self._broker
        later, membership = joining.registrations, joining.membership
        ages_ms = {} if later is None else later.ages_ms(broker.clock.monotonic_ms())
        return {
            **membership_details(metadata, broker.config.node_id, broker.settings.config, ages_ms),
            # Without a connection to the controller, these details can be old.
            "is_current": membership is None or membership.may_read,
        }

    @property
    def _lived_ms(self) -> int:
        """The clock for the progress of followers, without the stalls of this broker's event
        loop."""
        joining = self._broker.joining
        membership = None if joining is None else joining.membership
        return self._broker.clock.monotonic_ms() if membership is None else membership.lived_ms

    def _details(self) -> dict[str, object]:
        broker = self._broker
        parts = broker.parts
        image, partitions = parts.metadata.image, list(parts.replicas)
        followed = followed_of(partitions, self._lived_ms)
        copies = broker.serving.copies
        is_ack = broker.settings.config.log_config().is_flushed_before_ack
        return {
            "node_id": broker.config.node_id,
            "cluster_id": broker.config.cluster_id,
            "listeners": {
                name: f"{address.advertised_host}:{address.advertised_port}"
                for name, address in broker.config.listeners.items()
            },
            "flush": "ack" if is_ack else "interval",
            "topics": len(image.topics),
            "partitions": len(partitions),
            **asdict(tally_of(image, partitions, followed)),
            "copies": copies_details(image, broker.settings.config),
            "copying": copying_details(copies, is_out_of_room=broker.serving.is_out_of_room),
            "connections": len(broker.listeners.sessions.open),
            "requests_total": broker.metrics.requests_total,
            "fetch_completed_early": broker.metrics.fetches_completed_early,
            "log_bytes": sum(one.log.size_bytes for one in partitions),
            **self._rates(),
            **self._coordinators(),
            "parked_produces": parts.produces.parked_count,
            "parked_fetches": parts.fetches.parked_count,
            **broker.metrics.details(),
            "topic_list": [{"topic": name, **counts} for name, counts in self._topics().items()],
            **partition_details(image, partitions, followed, copies),
        }

    def _topics(self) -> dict[str, dict[str, int]]:
        """Return the bytes in, bytes out and size of each topic, over its partitions on this
        broker."""
        topics: dict[str, dict[str, int]] = {}
        for one in sorted(self._broker.parts.replicas, key=lambda one: one.topic_partition):
            counts = {
                "bytes_in": one.bytes_in,
                "bytes_out": one.bytes_out,
                "size_bytes": one.log.size_bytes,
            }
            known = topics.setdefault(one.topic, dict.fromkeys(counts, 0))
            for name, value in counts.items():
                known[name] += value
        return topics

    def _coordinators(self) -> dict[str, int]:
        """Return the numbers of groups, group members and transactions."""
        parts = self._broker.parts
        rosters = [
            group.roster
            for shard in parts.groups.shards()
            for group in shard.members.groups.values()
        ]
        states = [
            transaction.state
            for shard in parts.transactions.shards()
            for transaction in shard.transactions.values()
        ]
        return {
            "groups": len(rosters),
            "group_members": sum(len(roster) for roster in rosters),
            "parked_joins": sum(roster.waiting_count for roster in rosters),
            "transactional_ids": len(states),
            "open_transactions": sum(
                state is TxnState.ONGOING or state.is_preparing for state in states
            ),
        }

    def _rates(self) -> dict[str, float]:
        """Return rates per second since the oldest kept sample; empty for the first sample."""
        metrics = self._broker.parts.metrics
        now_ms = self._broker.clock.monotonic_ms()
        counts = {
            "requests": metrics.requests_total,
            "bytes_in": metrics.bytes_in,
            "bytes_out": metrics.bytes_out,
        }
        rates: dict[str, float] = {}
        if self._samples and now_ms > self._samples[0].at_ms:
            since_ms, earlier = self._samples[0]
            for name, value in counts.items():
                rates[f"{name}_per_s"] = (value - earlier[name]) * 1000 / (now_ms - since_ms)
        if not self._samples or now_ms - self._samples[-1].at_ms >= RATE_SAMPLE_MS:
            self._samples.append(_Sample(now_ms, counts))
        return rates

    def metrics(self) -> str:
        """Return the metrics in Prometheus's text format."""
        broker = self._broker
        if not broker.is_serving:
            return broker.metrics.text({})
        parts = broker.parts
        topics = self._topics()
        by_metric = {
            metric: {name: counts[key] for name, counts in topics.items()}
            for metric, key in (
                ("topic_bytes_in_total", "bytes_in"),
                ("topic_bytes_out_total", "bytes_out"),
                ("topic_log_bytes", "size_bytes"),
            )
        }
        return broker.metrics.text(
            {
                "connections": len(broker.listeners.sessions.open),
                "topics": len(parts.metadata.image.topics),
                "partitions": len(list(parts.replicas)),
                "log_bytes": sum(by_metric["topic_log_bytes"].values()),
                "parked_produces": parts.produces.parked_count,
                "parked_fetches": parts.fetches.parked_count,
                **self._coordinators(),
                **self._cluster_gauges(),
            },
            by_metric,
        )

    def _cluster_gauges(self) -> dict[str, int]:
        """Return the gauges of the cluster and the partitions, under the names of Kafka's
        metrics."""
        broker, metadata = self._broker, self._broker.parts.metadata
        own = metadata.image.brokers.get(broker.config.node_id)
        replicas = broker.parts.replicas
        tally = tally_of(metadata.image, replicas, followed_of(replicas, self._lived_ms))
        return {
            "active_controller_count": int(metadata.controller.is_active),
            "quorum_epoch": metadata.quorum.epoch,
            "metadata_offset": metadata.image.end_offset,
            "fenced": int(own is None or own.is_fenced),
            "leader_count": tally.leads,
            "under_replicated_partitions": tally.under_replicated,
            "under_min_isr_partition_count": tally.under_min_isr,
            "offline_partitions_count": tally.offline,
            "follower_lag_max": tally.follower_lag_max,
        }
