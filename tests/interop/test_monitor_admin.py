"""Orders from the page that a real broker executes. Each is planned, confirmed and checked."""

import re
from collections.abc import Iterator
from functools import cache
from http.cookiejar import CookieJar
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import HTTPCookieProcessor, OpenerDirector, Request, build_opener

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource
from confluent_kafka.cimpl import NewTopic

from tests.harness.broker import BrokerProcess
from tests.harness.monitor import MonitorProcess
from tests.harness.wait import wait_until

pytestmark = [pytest.mark.live, pytest.mark.timeout(180)]

TOKEN = "a-token"
TOPIC = "orders"
RECORDS = 20


class Page:
    """A user's browser without scripts: it stores cookies and sends forms."""

    def __init__(self, monitor: MonitorProcess) -> None:
        self.here = f"http://127.0.0.1:{monitor.port}"
        self._opener: OpenerDirector = build_opener(HTTPCookieProcessor(CookieJar()))
        self._form_secret = ""
        self._form_secret = self.hidden(
            self.post("enter", {"who": "Ada", "token": TOKEN}), "form_secret"
        )

    def post(self, path: str, words: dict[str, str]) -> str:
        body = urlencode({"form_secret": self._form_secret} | words).encode()
        request = Request(f"{self.here}/admin/{path}", body, {"Origin": self.here})
        try:
            with self._opener.open(request, timeout=20) as answer:
                return str(answer.read().decode())
        except HTTPError as error:
            return error.read().decode()

    def hidden(self, text: str, name: str) -> str:
        found = re.search(rf'name="{name}" value="([^"]+)"', text)
        assert found is not None, text
        return found[1]

    def order(self, operation: str, words: dict[str, str], name: str) -> tuple[str, str]:
        """Post an order and confirm it with this name. Return the page of the plan and the page of
        the outcome."""
        plan = self.post(operation, words)
        ticket = self.hidden(plan, "ticket")
        return plan, self.post(f"{operation}/confirm", {"ticket": ticket, "name": name})


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("broker")) as running:
        made = admin(running).create_topics([NewTopic(TOPIC, 2, 1)])
        made[TOPIC].result(30)
        fill(running)
        yield running
        # Drop the cached clients now, because they would log warnings after the broker has ended.
        admin.cache_clear()


@pytest.fixture(scope="module")
def monitor(
    broker: BrokerProcess, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[MonitorProcess]:
    running = MonitorProcess(
        [broker], tmp_path_factory.mktemp("monitor"), refresh="500ms", token=TOKEN
    )
    try:
        wait_until(lambda: running.rows("topics"), 60, "the first snapshot")
        yield running
    finally:
        running.kill()


@pytest.fixture
def page(monitor: MonitorProcess) -> Page:
    return Page(monitor)


def fill(broker: BrokerProcess) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(RECORDS):
        producer.produce(TOPIC, f"{number}", partition=0)
    assert producer.flush(30) == 0


@cache
def admin(broker: BrokerProcess) -> AdminClient:
    return AdminClient({"bootstrap.servers": broker.bootstrap})


def config_of(broker: BrokerProcess, topic: str, key: str) -> str:
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    found = admin(broker).describe_configs([resource])[resource].result(30)
    return str(found[key].value)


def start_of(broker: BrokerProcess, topic: str) -> int:
    reader = consumer(broker, "looks")
    try:
        start, _ = reader.get_watermark_offsets(TopicPartition(topic, 0), timeout=30)
        return int(start)
    finally:
        reader.close()


def consumer(broker: BrokerProcess, group: str) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": broker.bootstrap, "group.id": group,
            "auto.offset.reset": "earliest", "enable.auto.commit": False,
        }
    )  # fmt: skip


def committed(broker: BrokerProcess, group: str) -> int:
    reader = consumer(broker, group)
    try:
        (row,) = reader.committed([TopicPartition(TOPIC, 0)], timeout=30)
        return int(row.offset)
    finally:
        reader.close()


def test_a_topic_is_made_and_a_second_one_of_its_name_is_refused(
    broker: BrokerProcess, page: Page
) -> None:
    words = {"topic": "made", "partitions": "3", "replicas": "", "settings": "retention.ms=5000"}
    plan, outcome = page.order("create-topic", words, "made")
    assert "retention.ms" in plan
    assert "Creates the topic made: done" in outcome
    topics = admin(broker).list_topics(timeout=30).topics
    assert len(topics["made"].partitions) == 3
    assert config_of(broker, "made", "retention.ms") == "5000"
    again = page.post("create-topic", words)
    assert "Refused: " in again
    assert 'name="ticket"' not in again
    wrong = page.post("create-topic", words | {"topic": "other", "settings": "retention.ms=soon"})
    assert "Refused: " in wrong
    assert "other" not in admin(broker).list_topics(timeout=30).topics


def test_settings_are_altered_taken_back_and_checked_first(
    broker: BrokerProcess, page: Page
) -> None:
    words = {"topic": TOPIC, "settings": "retention.ms=60000", "partitions": "3"}
    plan, outcome = page.order("alter-topic", words, TOPIC)
    assert "DEFAULT_CONFIG" in plan
    assert "done" in outcome
    assert config_of(broker, TOPIC, "retention.ms") == "60000"
    assert len(admin(broker).list_topics(timeout=30).topics[TOPIC].partitions) == 3
    plan, _ = page.order(
        "alter-topic", {"topic": TOPIC, "settings": "-retention.ms", "partitions": ""}, TOPIC
    )
    assert "60000 (DYNAMIC_TOPIC_CONFIG)" in plan
    assert config_of(broker, TOPIC, "retention.ms") != "60000"
    fewer = page.post("alter-topic", {"topic": TOPIC, "settings": "", "partitions": "2"})
    assert "expected a higher number" in fewer
    wrong = page.post("alter-topic", {"topic": TOPIC, "settings": "no.such=1", "partitions": ""})
    assert "Refused: " in wrong


def test_a_stopped_group_goes_on_elsewhere_and_a_running_one_is_refused(
    broker: BrokerProcess, page: Page, monitor: MonitorProcess
) -> None:
    reader = consumer(broker, "billing")
    reader.subscribe([TOPIC])
    wait_until(lambda: reader.poll(1.0) or reader.assignment(), 60, "the reader reads")
    reader.commit(offsets=[TopicPartition(TOPIC, 0, 12)], asynchronous=False)
    words = {"group": "billing", "topics": "", "to": "-5"}
    running = page.post("reset-offsets", words)
    assert "current state is Stable" in running
    assert "Stop its members first" in running
    assert 'name="ticket"' not in running
    reader.close()
    assert committed(broker, "billing") == 12
    plan, outcome = page.order("reset-offsets", words, "billing")
    assert "5 offsets read again" in plan
    assert "done" in outcome
    assert committed(broker, "billing") == 7
    unknown = page.post("reset-offsets", words | {"topics": "nowhere"})
    assert "does not exist" in unknown


def test_a_group_that_starts_between_plan_and_confirmation_is_refused(
    broker: BrokerProcess, page: Page
) -> None:
    first = consumer(broker, "early")
    first.commit(offsets=[TopicPartition(TOPIC, 0, 3)], asynchronous=False)
    plan = page.post("reset-offsets", {"group": "early", "topics": "", "to": "end"})
    ticket = page.hidden(plan, "ticket")
    first.subscribe([TOPIC])
    wait_until(lambda: first.poll(1.0) or first.assignment(), 60, "the reader has started")
    answer = page.post("reset-offsets/confirm", {"ticket": ticket, "name": "early"})
    first.close()
    assert "has changed since the plan was made" in answer
    assert committed(broker, "early") == 3


def test_records_are_deleted_below_what_the_plan_says(
    broker: BrokerProcess, page: Page, monitor: MonitorProcess
) -> None:
    reader = consumer(broker, "slow")
    reader.commit(offsets=[TopicPartition(TOPIC, 0, 4)], asynchronous=False)
    reader.close()
    wait_until(
        lambda: any(row["group"] == "slow" for row in monitor.rows("groups")), 60,
        "the monitor sees the group",
    )  # fmt: skip
    words = {"topic": TOPIC, "partitions": "0", "below": "10"}
    plan = page.post("delete-records", words)
    assert "The group slow has not read up to 6 of these offsets" in plan
    assert start_of(broker, TOPIC) == 0
    ticket = page.hidden(plan, "ticket")
    outcome = page.post("delete-records/confirm", {"ticket": ticket, "name": TOPIC})
    assert "done" in outcome
    assert start_of(broker, TOPIC) == 10
    kept = page.post("delete-records", words | {"topic": "__consumer_offsets", "below": "end"})
    assert "belongs to the brokers" in kept


def test_leaders_that_are_right_are_left_alone(page: Page) -> None:
    answer = page.post("elect-leaders", {"topic": TOPIC})
    assert "nothing to elect" in answer
    assert "does not exist" in page.post("elect-leaders", {"topic": "nowhere"})


def test_every_order_is_kept(monitor: MonitorProcess, page: Page) -> None:
    page.order("create-topic", {"topic": "kept", "partitions": "1"}, "kept")
    told = [row["text"] for row in monitor.rows("events") if row["kind"] == "admin"]
    of_this_one = [one for one in told if "the topic kept" in one]
    said = "Ada (127.0.0.1): Creates the topic kept, 2 changes: "
    assert sorted(of_this_one) == [said + "begun", said + "done"]
