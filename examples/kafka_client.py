"""A Kafka client: a topic goes into a stream, each message once; and a stream goes into a topic.

    python kafka_client.py pull localhost:9092 orders data     # the topic `orders` into a stream in data/
    python kafka_client.py push localhost:9092 orders data     # the stream `orders` into a topic

Both go on where they were, and end when they have what was there as they began. `pull` tells Kafka how far it
has come when that is on the disk here; what comes a second time after a crash is known by its id, which is
partition and offset, and left out. `push` sends each entry with its index, and looks at the end of the topic
for the last one that arrived.

It needs `pip install confluent-kafka`. Without arguments it has a broker of its own, and shows both ways.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence

import pyarrow as pa

import headrace as hr

try:
    from confluent_kafka import Consumer, Message, Producer, TopicPartition
except ImportError:
    sys.exit("this example speaks to Kafka by confluent-kafka: pip install confluent-kafka")

MESSAGES = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),
        pa.field("time", pa.timestamp("ms", "UTC")),
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
    ]
)
INDEX = "headrace-index"
WAIT_S = 30.0


def pull(servers: str, topic: str, store: hr.Store) -> str:
    """Copy what the topic has now, and say how much of it was new."""
    new = known = 0
    consumer = subscriber(servers, f"headrace-{topic}")
    stream = store.stream(topic, MESSAGES, unique_by="id")
    with stream.publisher() as publisher:
        for place, end in unread(consumer, topic):
            consumer.assign([place])
            while place.offset < end:
                messages = consumer.consume(min(10_000, end - place.offset), timeout=WAIT_S)
                published = publisher.publish_batch(table_of(messages))
                publisher.flush()  # on the disk here, before Kafka is told
                place.offset = messages[-1].offset() + 1
                consumer.commit(offsets=[place], asynchronous=False)
                new += published.next_index - published.base_index
                known += len(published.duplicates)
    consumer.close()
    return f"pulled {new} messages, left out {known} that were known"


def push(servers: str, topic: str, store: hr.Store) -> int:
    """Send what the stream has now, and the topic does not; how many entries that was."""
    sent = 0
    start = last_pushed(servers, topic) + 1
    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True})
    for entry in store.stream(topic).listen(start=start):
        while len(producer) > 50_000:
            producer.poll(0.1)
        headers = [(INDEX, b"%d" % entry.index)]
        value = entry.value
        producer.produce(topic, value["value"], value["key"], partition=0, headers=headers)
        sent += 1
    if left := producer.flush(WAIT_S):
        raise TimeoutError(f"{left} entries did not arrive: run it again, it goes on behind those that did")
    return sent


def subscriber(servers: str, group: str) -> Consumer:
    return Consumer({"bootstrap.servers": servers, "group.id": group, "enable.auto.commit": False})


def unread(consumer: Consumer, topic: str) -> list[tuple[TopicPartition, int]]:
    """Of each partition the offset at which to go on, and its end."""
    found = []
    for number in consumer.list_topics(topic, WAIT_S).topics[topic].partitions:
        [place] = consumer.committed([TopicPartition(topic, number)], WAIT_S)
        first, end = consumer.get_watermark_offsets(place, WAIT_S)
        place.offset = max(place.offset, first)  # what is not committed yet is negative
        found.append((place, end))
    return found


def table_of(messages: Sequence[Message]) -> pa.Table:
    if not messages:
        raise TimeoutError(f"no message came in {WAIT_S:.0f} s: is the broker there?")
    if errors := [message.error() for message in messages if message.error()]:
        raise ConnectionError(str(errors[0]))
    rows = [
        {
            "id": f"{each.partition()}:{each.offset()}",
            "time": each.timestamp()[1],
            "key": each.key(),
            "value": each.value(),
        }
        for each in messages
    ]
    return pa.Table.from_pylist(rows, MESSAGES)


def last_pushed(servers: str, topic: str) -> int:
    """The index of the last entry that the topic has; -1 if it has none."""
    consumer = subscriber(servers, f"headrace-push-{topic}")
    first = end = 0
    if consumer.list_topics(topic, WAIT_S).topics[topic].error is None:  # else nobody has made it yet
        first, end = consumer.get_watermark_offsets(TopicPartition(topic, 0), WAIT_S)
    headers: dict[str, bytes] = {INDEX: b"-1"}
    if end > first:
        consumer.assign([TopicPartition(topic, 0, end - 1)])
        [message] = consumer.consume(1, WAIT_S)
        headers = dict(message.headers() or [])
    consumer.close()
    if INDEX not in headers:
        sys.exit(f"the last message of {topic} is not one of ours: push to a topic that nobody else writes")
    return int(headers[INDEX])


def show_both_ways() -> None:
    """With a broker that librdkafka has for tests: real connections, and nothing to install."""
    shutil.rmtree("kafka-data", ignore_errors=True)
    broker = Producer({"test.mock.num.brokers": 1, "bootstrap.servers": "none", "log_level": 0})
    [address] = broker.list_topics(timeout=WAIT_S).brokers.values()
    servers = f"{address.host}:{address.port}"
    for number in range(1000):
        broker.produce("orders", b"order %d" % number, b"customer %d" % (number % 7), partition=number % 4)
    broker.flush(WAIT_S)
    with hr.open("kafka-data") as store:
        print(pull(servers, "orders", store))
        forget(servers, "orders")
        print("and after a crash before Kafka was told:", pull(servers, "orders", store))
        invoices = store.stream("invoices", MESSAGES)
        for number in range(3):
            bill(invoices, number)
            print("pushed", push(servers, "invoices", store), "of", invoices.next_index, "invoices")


def forget(servers: str, topic: str) -> None:
    """Leave Kafka as if the last pull had not told it anything."""
    consumer = subscriber(servers, f"headrace-{topic}")
    numbers = consumer.list_topics(topic, WAIT_S).topics[topic].partitions
    consumer.commit(offsets=[TopicPartition(topic, number, 0) for number in numbers], asynchronous=False)
    consumer.close()


def bill(invoices: hr.Stream, number: int) -> None:
    row = {"id": f"{number}", "time": None, "key": None, "value": b"invoice %d" % number}
    with invoices.publisher() as publisher:
        publisher.publish_batch([row])


if __name__ == "__main__":
    match sys.argv[1:]:
        case []:
            show_both_ways()
        case ["pull", servers, topic, path]:
            with hr.open(path) as store:
                print(pull(servers, topic, store))
        case ["push", servers, topic, path]:
            with hr.open(path) as store:
                print("pushed", push(servers, topic, store), "entries")
        case _:
            sys.exit("usage: kafka_client.py [pull | push SERVERS TOPIC STORE]")
