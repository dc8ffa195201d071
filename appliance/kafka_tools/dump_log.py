"""`kafka-dump-log`: print and check log files.

Unlike Kafka's tool, it ends with code 3 when it finds damage, and prints every finding on standard
error.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

from appliance.dump import lines
from appliance.dump.decoders import Decoded, Decoder
from appliance.dump.folder import (
    METADATA_SNAPSHOT,
    SUFFIXES,
    base_offset_of,
    check_files,
    is_known,
    mapped,
    named,
)
from appliance.kafka.records import DESERIALIZERS, Deserializer, UndecodableBytes
from appliance.kafka_tools.base import ToolParser, UsageFault, run_tool
from appliance.output import CommandError, Exit, out, say
from broker.quorum.snapshot import SnapshotId
from protocol.wire.record import Record

MAX_MESSAGE_BYTES = 5 << 20
DECODER_CLASSES: dict[str, Deserializer] = {
    "StringDecoder": DESERIALIZERS["StringDeserializer"],
    "DefaultDecoder": DESERIALIZERS["ByteArrayDeserializer"],
    "IntegerDecoder": DESERIALIZERS["IntegerDeserializer"],
    "LongDecoder": DESERIALIZERS["LongDeserializer"],
}


def main(arguments: Sequence[str]) -> int:
    """Run the tool."""
    return run_tool(_parser(), arguments, _work)


def _parser() -> ToolParser:
    parser = ToolParser("dump-log", "Print log files, indexes and snapshots, and check them.")
    add = parser.add_argument
    add("--files", metavar="FILE,…")
    for flag in ("deep-iteration", "print-data-log", "verify-index-only", "index-sanity-check"):
        add(f"--{flag}", action="store_true")
    for flag in ("offsets-decoder", "transaction-log-decoder", "cluster-metadata-decoder"):
        add(f"--{flag}", action="store_true")
    add("--skip-record-metadata", action="store_true")
    add("--max-bytes", type=int)
    add("--max-message-size", type=int, default=MAX_MESSAGE_BYTES, help="Taken, without effect.")
    for part in ("key", "value"):
        add(f"--{part}-decoder-class", metavar="CLASS", type=_decoder_class)
    for kind in ("remote-log-metadata", "share-group-state"):
        parser.refuses(f"--{kind}-decoder", "is of a log that this version does not have")
    return parser


def _decoder_class(name: str) -> str:
    """Return a class name without its package, for a known decoder class. Raises ArgumentTypeError
    for any other."""
    short = name.rsplit(".", 1)[-1]
    if short not in DECODER_CLASSES:
        known = ", ".join(DECODER_CLASSES)
        raise argparse.ArgumentTypeError(f"found {name}, expected one of {known}")
    return short


def _work(options: argparse.Namespace) -> int:
    if not options.files:
        raise UsageFault('Missing required argument "[files]"')
    paths = [Path(name) for name in options.files.split(",") if name]
    for path in paths:
        if not is_known(path):
            known = ", ".join((*SUFFIXES, METADATA_SNAPSHOT))
            raise CommandError(f"Ignoring unknown file {path}; known are {known}", Exit.USAGE)
        if not path.is_file():
            raise CommandError(f"there is no file {path}", Exit.NOT_FOUND)
    for path in paths:
        out(f"Dumping {path}")
        _print(path, options)
    found = check_files(paths).findings
    for finding in found:
        say(str(finding))
    return Exit.CONDITION if found else Exit.OK


def _print(path: Path, options: argparse.Namespace) -> None:
    if path.suffix == ".index" and not path.stat().st_size:
        out(f"{path} is empty.")
        return
    if options.verify_index_only and path.suffix in (".index", ".timeindex"):
        return
    if options.index_sanity_check and path.suffix in (".index", ".timeindex"):
        if not check_files([path]).findings:
            out(f"{path} passed sanity check.")
        return
    name, base_offset = named(path), base_offset_of(path)
    if name is not None:
        _print_log(path, name, options)
        return
    assert base_offset is not None, "checked before anything is printed"
    data = path.read_bytes()
    try:
        match path.suffix:
            case ".index":
                found = lines.offset_index_lines(data, base_offset)
            case ".timeindex":
                found = lines.time_index_lines(data, base_offset)
            case ".txnindex":
                found = lines.txn_index_lines(data)
            case _:
                found = lines.snapshot_lines(data)
        for line in found:
            out(line)
    except ValueError:
        # The fault is printed later with all other findings, so stop here without an error.
        return


def _print_log(path: Path, name: int | SnapshotId, options: argparse.Namespace) -> None:
    decoder = None
    for flag, kind in (
        (options.print_data_log, "plain"),
        (options.offsets_decoder, "offsets"),
        (options.transaction_log_decoder, "transactions"),
        (options.cluster_metadata_decoder, "metadata"),
    ):
        if flag:
            decoder = lines.DECODERS[kind]
    if options.key_decoder_class or options.value_decoder_class:
        decoder = _of_classes(options) if decoder is lines.DECODERS["plain"] else decoder
    with mapped(path) as buffer:
        for line in lines.log_lines(
            buffer,
            name,
            decoder=decoder,
            with_records=options.deep_iteration or decoder is not None,
            with_metadata=not options.skip_record_metadata,
            bytes_max=options.max_bytes,
        ):
            out(line)
        if options.max_bytes is None and (left := lines.left_line(buffer, path.name)):
            out(left)


def _of_classes(options: argparse.Namespace) -> Decoder:
    """Return the decoder for `--print-data-log`. It decodes keys and values in the same way as the
    named deserializer classes of Kafka."""

    def text(name: str | None, part: bytes | None) -> str | None:
        if part is None:
            return None
        return DECODER_CLASSES[name or "StringDecoder"](part).decode(errors="replace")

    def decode(record: Record) -> Decoded:
        try:
            key = text(options.key_decoder_class, record.key)
            return key, text(options.value_decoder_class, record.value)
        except UndecodableBytes as error:
            raise CommandError(
                f"the record at offset {record.offset} cannot be decoded: {error}", Exit.FAILED
            ) from error

    return decode
