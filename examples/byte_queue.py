"""A byte queue: records pile up on disk, and are read from any address, now or after a restart."""

from __future__ import annotations

import headrace as hr

with hr.writer("queue-data") as out:
    first = out.write(b"hello")
    out.write("wörld".encode())
    out.write_many([b"reading %d" % n for n in range(1000)])
    out.flush()  # from here on, no crash loses them
    print(f"wrote records {first} to {out.address - 1}")

with hr.reader("queue-data", first) as records:
    print(records.read(), records.read())
    print(f"and {sum(1 for _ in records)} more; the next one will be at {records.address}")

# A queue that flushes by itself: after 100 writes, or 64 KiB, or a tenth of a second.
with hr.writer("queue-data", flush=hr.FlushPolicy(writes=100, bytes=64 << 10, seconds=0.1)) as out:
    for n in range(250):
        out.write(b"tick %d" % n)
    print(f"the queue ends at {out.address}")
