"""What tests of copies share: sources with a past, what a source sends, and the past as numbers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice, pairwise
from pathlib import Path
from random import Random

import pyarrow as pa
import xxhash

from headrace.kernel.errors import HeadraceError
from headrace.log import Finalize, Log, Settings
from headrace.log.body import BodyDecoder
from headrace.log.claim import Claim
from headrace.log.copy import LogCopy, Origin
from headrace.log.disk import Disk
from headrace.log.frame import Kind, encode_header
from headrace.log.frame_stream import FrameEncoder, FrameParser, Note
from headrace.log.meta import load_meta
from headrace.log.recover import fold_segment
from headrace.log.scan import Frame, Scanner
from headrace.log.segment_name import FinalName, Listing
from headrace.log.start import read_start
from headrace.log.state import decode_commit
from headrace.log.view import View

from .samples import ORDERS, orders

ORIGIN = Origin("http://source:7400", "s")
SMALL = Settings(finalize=Finalize(entries=25))
STEPS = ["batch", "batch", "batch", "large", "group", "empty", "head", "roll", "grow", "sync"]
GROWN = ORDERS.append(pa.field("more", pa.int64()))


def source(path: Path, settings: Settings = SMALL) -> Log:
    return Log.open(path, ORDERS, settings, order_by="at")


def live(log: Log, chance: Random, steps: int) -> None:
    """Append to a log in every way there is; at the end all of it is settled."""
    for _ in range(steps):
        index = log.next_index
        match chance.choice(
            ["batch", "batch", "batch", "large", "group", "empty", "head", "roll", "grow", "sync"]
        ):
            case "batch":
                log.append(rows(log, index, index + chance.randint(1, 5)))
            case "large":
                log.append(rows(log, index, index + 3000))  # stored by columns
            case "group":
                parts = [rows(log, index, index + 2), rows(log, index + 2, index + 3)]
                log.append_group(parts, writer=chance.choice("ab"), sequence=index)
            case "empty":
                log.append_group([], writer="e", sequence=index)
            case "head":
                log.head(index)
            case "roll":
                log.roll()
            case "grow" if log.schema == ORDERS:
                log.evolve(GROWN)
            case _:
                log.sync()
    log.append(rows(log, log.next_index, log.next_index + 1))
    log.sync()


def rows(log: Log, first: int, stop: int) -> pa.RecordBatch:
    made = orders(first, stop)
    if log.schema == ORDERS:
        return made
    return pa.record_batch([*made.columns, pa.array(range(first, stop), pa.int64())], schema=log.schema)


def sent(log: Log, claim: Claim | None, in_portion: int = 3) -> list[bytes]:
    """What the node of a log answers to a claim: notes and frames, each for itself."""
    cursor = log.frames(claim)
    try:
        encoder, pieces = FrameEncoder(cursor.salt), list[bytes]()
        note = Note(end=log.settled.next_index, base=log.first_index)
        while frames := list(islice(iter(cursor.next_frame, None), in_portion)):
            first, *parts = map(bytes, encoder.portion(note, frames))
            pieces += [first, *(head + body for head, body in batched(parts))]
        return [*pieces, *map(bytes, encoder.portion(note, []))]
    finally:
        cursor.close()


def batched(parts: list[bytes]) -> Iterable[tuple[bytes, bytes]]:
    return zip(parts[::2], parts[1::2], strict=True)


def deliver(copy: LogCopy, pieces: Iterable[bytes]) -> HeadraceError | None:
    """Let a copy take what comes over one connection; what ended it."""
    parser, error = FrameParser(), None
    try:
        for piece in pieces:
            for portion in parser.feed(piece):
                copy.noted(portion.note)
                copy.land(portion.frames)
            copy.sync()
    except HeadraceError as failed:
        error = failed
    if not copy.broken:
        copy.abandon()
    return error


def in_pieces(raw: bytes, chance: Random) -> list[bytes]:
    """The same bytes, cut anywhere."""
    cuts = sorted({0, len(raw), *(chance.randint(0, len(raw)) for _ in range(chance.randint(0, 8)))})
    return [raw[a:b] for a, b in pairwise(cuts)]


def past(path: Path) -> list[tuple[int, int]]:
    """Every frame that says something, in order: the index behind it, and a checksum of all up to it.

    Taken from the files. What is trimmed is each log's own business. Segments say again where HEAD stands,
    and what was committed without entries: of HEAD only its moves count, and of commits those of entries.
    """
    disk, meta = Disk(), load_meta(Disk(), path)
    fold, found, head = xxhash.xxh3_64(), list[tuple[int, int]](), 0
    for name in Listing.of(disk.names(path)).segments:
        with disk.opened(path / str(name)) as file:
            view = View(file, salt=meta.salt, finalized=isinstance(name, FinalName), copying=True)
            schema = read_start(view, str(name)).meta.schema
            for frame in Scanner(view, str(name), name.first_index, BodyDecoder(schema)):
                assert isinstance(frame, Frame), frame
                said, header = b"", frame.header
                if header.kind == Kind.HEAD and header.last_key > head:
                    said = b"%d %d" % (header.base_index, header.last_key)
                elif header.kind in (Kind.BATCH, Kind.GAP) or is_of_entries(frame):
                    said = encode_header(header, meta.salt) + bytes(frame.body)
                if said:
                    fold.update(said)
                    found.append((header.next_index, fold.intdigest()))
                if header.kind in (Kind.BATCH, Kind.HEAD):
                    head = max(head, header.last_key)
    return found


def is_of_entries(frame: Frame) -> bool:
    if frame.header.kind != Kind.COMMIT:
        return False
    commit = decode_commit(bytes(frame.body))
    return commit.next_index > commit.base_index


def commits(path: Path) -> dict[str, int]:
    """The last sequence number of every writer, as a writer of the log knows it."""
    disk, meta = Disk(), load_meta(Disk(), path)
    listing = Listing.of(disk.names(path))
    assert listing.active is not None
    with disk.opened(path / str(listing.active)) as file:
        view = View(file, salt=meta.salt, finalized=False, copying=True)
        recovered = read_start(view, "active").state
        scanner = Scanner(view, "active", listing.active.first_index, BodyDecoder(meta.schema))
        fold_segment(scanner, recovered, None, [])
    return {writer: commit.sequence for writer, commit in recovered.commits.items()}


def is_beginning(some: Sequence[object], whole: Sequence[object]) -> bool:
    return list(some) == list(whole[: len(some)])
