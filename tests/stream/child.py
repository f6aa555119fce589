"""What other processes do in these tests: `python -m tests.stream.child FUNCTION ARGUMENTS`.

Each says "ready" when it is, and ends by itself or when its input is closed.
"""

from __future__ import annotations

import os
import sys

import headrace as hr
from headrace.stream import Head, StreamExists

from .samples import Named, Number, Order


def say(*words: object) -> None:
    """One line in one write: a kill leaves all of it or nothing."""
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


def heads(path: str, name: str, until: str) -> None:
    """Entries and heads up to a key."""
    with hr.open(path) as store:
        stream = store.stream(name, Number, order_by="n")
        say("ready")
        for item in stream.listen_with_heads(follow=True, until=hr.at_key(int(until))):
            say("head" if isinstance(item, Head) else "entry", item.key)
        say("ended")


def listen(path: str, name: str, count: str) -> None:
    """Follow from the start; say the sum and the order of what came."""
    with hr.open(path) as store:
        stream = store.stream(name, Number)
        say("ready")
        numbers = [entry.value.n for entry in stream.listen(count=int(count), follow=True)]
        say(sum(numbers), numbers == sorted(numbers))


def hold(path: str, name: str) -> None:
    """Be the publisher until the input ends; then try to publish once more."""
    with hr.open(path) as store:
        publisher = store.stream(name, Number).publisher()
        publisher.publish(Number(0))
        publisher.flush()
        say("ready")
        sys.stdin.read()
        try:
            publisher.publish(Number(1))
            publisher.flush()
            say("published")
        except hr.HeadraceError as error:
            say(error.code)
        try:
            publisher.close()
        except hr.HeadraceError as error:
            say(error.code)


def publish(path: str, name: str, first: str) -> None:
    """Publish numbers for ever, in a mix of ways, and say how far they are durable; to be killed."""
    with hr.open(path) as store:
        stream = store.stream(name, Order, order_by="at")
        from .samples import order

        with stream.publisher() as publisher:
            say("ready")
            n = int(first)
            while True:
                for _ in range(1 + n % 7):
                    publisher.publish(order(n))
                    n += 1
                if n % 3 == 0:
                    publisher.flush()
                    say(publisher.durable_index)


def publish_ids(path: str, name: str, seed: str) -> None:
    """Publish ids, many of them twice, singly and by batch; say which are acknowledged; to be killed."""
    import random

    import pyarrow as pa

    from headrace.stream import DuplicateId

    chance = random.Random(int(seed))
    with hr.open(path) as store:
        stream = store.stream(name, Named, unique_by="id")
        with stream.publisher() as publisher:
            say("ready")
            while True:
                news: list[str] = []
                for _ in range(chance.randrange(1, 20)):
                    if chance.random() < 0.7:
                        word = f"id-{chance.randrange(4000)}"
                        try:
                            publisher.publish(Named(word, 1))
                            news.append(word)
                        except DuplicateId:
                            say("refused", word)
                    else:
                        words = [f"id-{chance.randrange(4000)}" for _ in range(chance.randrange(1, 9))]
                        made = publisher.publish_batch(pa.table({"id": words, "n": [2] * len(words)}))
                        for at in made.duplicates:
                            say("refused", words[at])
                        news += [word for at, word in enumerate(words) if at not in made.duplicates]
                publisher.flush()
                for word in news:
                    say("durable", word)


def create(path: str, count: str) -> None:
    """Wait for the word, then create streams as another process does the same."""
    say("ready")
    sys.stdin.readline()
    won = []
    for n in range(int(count)):
        with hr.open(f"{path}/store-{n % 10}") as store:
            try:
                store.create(f"s{n}", hr.StreamConfig(Number)).close()
                won.append(n)
            except StreamExists:
                pass
            store.stream(f"t{n}", Number).close()
    say(*won)


def many_ids(path: str, name: str, count: str) -> None:
    """Publish many ids, open them again, and say: MB grown by, MB resident at most, ids refused."""
    import resource

    import pyarrow as pa

    from headrace.stream import DuplicateId

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    step, total, refused = 50_000, int(count), 0
    with hr.open(path) as store:
        stream = store.stream(name, Named, unique_by="id")
        for half in range(2):  # the second publisher opens an index of half of them
            with stream.publisher() as publisher:
                for base in range(half * total // 2, (half + 1) * total // 2, step):
                    ids = [f"{n * 7919 % total:012d}" for n in range(base, base + step)]
                    publisher.publish_batch(pa.table({"id": ids, "n": range(step)}))
                for n in range(0, (half + 1) * total // 2, max(1, total // 2000)):
                    try:
                        publisher.publish(Named(f"{n * 7919 % total:012d}", 0))
                    except DuplicateId:
                        refused += half == 1
        assert stream.next_index == total
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    say(most - before, most, refused // 2)


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
