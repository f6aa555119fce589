"""A channel: a queue on disk between a producer and a consumer that may die at any moment."""

from __future__ import annotations

import threading

import headrace as hr

readings = [b"reading %d" % n for n in range(5)]


def upload() -> None:
    """The consumer: it acknowledges what it has dealt with, and stops when there is nothing for a while."""
    with hr.channel("outbox-data", "uploader") as outbox:
        while (data := outbox.get(timeout=0.5)) is not None:
            print("uploaded", data.decode())
            outbox.ack()  # without this it would come again after a crash


consumer = threading.Thread(target=upload)
with hr.channel("outbox-data", "uploader") as outbox:
    consumer.start()
    for data in readings:
        outbox.put(data)  # on the disk when it returns
    consumer.join()

# A consumer that forgets to acknowledge, or dies, gets the same record again.
with hr.channel("outbox-data", "uploader") as outbox:
    outbox.put(b"one more")
    print("got", outbox.get(timeout=1.0), "and dies")
with hr.channel("outbox-data", "uploader") as outbox:
    print("got", outbox.get(timeout=1.0), "again")
    outbox.ack()
