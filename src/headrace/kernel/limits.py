"""A bound on everything that grows. Units last in each name."""

from __future__ import annotations

FRAME_ALIGNMENT_BYTES = 64

BATCH_BYTES_MAX = 1 << 30
"""One frame's body. A larger batch is split by rows into an atomic group of several."""

COLUMN_SUMS_FROM_BYTES = 1 << 16
"""Batches at least this large are stored column by column, each with its own checksum."""

FIELDS_MAX = 4096
"""Of a stream. Every batch has a table of them, and every reader and writer something for each."""

NOTE_BYTES_MAX = 4096
WRITER_ID_BYTES_MAX = 256
WRITERS_MAX = 1024
"""Writers whose last commit is remembered; beyond, the one idle for longest is forgotten."""

CARRIED_COMMITS_BYTES_MAX = 1 << 17
"""What a segment's start says of earlier commits; it must fit the smallest container."""

NAME_BYTES_MAX = 200
CONTAINER_BYTES_MIN = 512 * 1024
CONTAINER_BYTES_MAX = 1 << 30
SECTOR_BYTES = 4096

SYNC_INTERVAL_MS_MAX = 24 * 3600 * 1000
"""Threads cannot wait for any time."""

INDEX_MAX = (1 << 63) - 1
"""Indexes are u64 on disk but stay within i64, which is what Spark and SQL call bigint."""
