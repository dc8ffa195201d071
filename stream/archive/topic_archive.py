"""One topic of the archive, as stored in its folder.

    topic=logs.access/hour=2026-11-23T22/00000012.parquet     the lines of a piece in that hour
    topic=logs.access/_pieces/00000012.json                   the piece's note
    topic=logs.access/_pieces/00000100.all.json               the notes of all pieces up to that one
    topic=logs.access/_drafts/00000013-…                      a piece that is being written

A piece is first written as a draft. Then its note is written, and then its files are moved into the
folders of their hours. After a crash between these steps, the next start removes a draft without a
note, and moves the files of a draft with a note. So any tool that reads the folders of the hours
sees no line twice, and no line of a failed attempt.
"""

import logging
import uuid

from protocol.log import fields
from stream.archive.contents import ArchivePiece, Pieces, decode, encode
from stream.archive.folders import Folder

# The most notes in addition to the combined note. There are few, because a start must open all of
# them.
NOTES_MAX = 100

_ALL = ".all.json"
_ONE = ".json"

logger = logging.getLogger(__name__)


class TopicArchive:
    """One topic's archive. `pieces` is its content, and is empty until `open` has read it."""

    def __init__(self, folder: Folder, topic: str) -> None:
        self.pieces = Pieces()
        self._folder = folder
        self._home = f"topic={topic}"

    def open(self) -> None:
        """Read the notes, and finish or remove drafts. Raises ValueError for damaged notes."""
        names = self._folder.names(f"{self._home}/_pieces")
        whole = max((name for name in names if name.endswith(_ALL)), default=None)
        pieces = Pieces() if whole is None else Pieces(decode(self._note(whole)))
        last = 0 if whole is None else pieces.next_number - 1
        for name in names:
            if name.endswith(_ONE) and not name.endswith(_ALL) and name > f"{last:08}{_ONE}":
                for piece in decode(self._note(name)):
                    pieces.add(piece)
        self.pieces = pieces
        drafts = self._folder.names(f"{self._home}/_drafts")
        noted = {piece.draft: piece for piece in pieces.all} if drafts else {}
        for draft in drafts:
            if draft in noted:
                self._place(noted[draft])
            else:
                self._folder.remove(f"{self._home}/_drafts/{draft}")
                logger.info("removed an unfinished piece of the archive", extra=fields(draft=draft))

    def new_draft(self) -> str:
        """Return a name for the draft of the next piece."""
        return f"{self.pieces.next_number:08}-{uuid.uuid4().hex[:8]}"

    def draft_uri(self, draft: str) -> str:
        """Return the URI of the folder in which Spark writes a draft."""
        return f"{self._folder.root}/{self._home}/_drafts/{draft}"

    def hours(self, draft: str) -> tuple[str, ...]:
        """Return the hours of a draft's lines, as the names of their folders."""
        names = self._folder.names(f"{self._home}/_drafts/{draft}")
        return tuple(name for name in names if name.startswith("hour="))

    def drop(self, draft: str) -> None:
        """Remove a draft that is not used."""
        self._folder.remove(f"{self._home}/_drafts/{draft}")

    def commit(self, piece: ArchivePiece) -> None:
        """Make a draft part of the archive.

        Raises FileExistsError if another process has already written a piece of this number.
        """
        self._folder.settle(f"{self._home}/_drafts/{piece.draft}")
        self._folder.write_new(f"{self._home}/_pieces/{piece.number:08}{_ONE}", encode([piece]))
        self._place(piece)
        self.pieces.add(piece)
        if piece.number % NOTES_MAX == 0:
            self._gather_notes(piece.number)

    def files(self, pieces: list[ArchivePiece]) -> list[str]:
        """Return the files of these pieces as URIs for Spark."""
        return [
            f"{self._folder.root}/{self._home}/{hour}/{piece.file_name}"
            for piece in pieces
            for hour in piece.hours
        ]

    def _place(self, piece: ArchivePiece) -> None:
        draft = f"{self._home}/_drafts/{piece.draft}"
        for hour in piece.hours:
            written = [
                name
                for name in self._folder.names(f"{draft}/{hour}")
                if name.endswith(".parquet") and not name.startswith((".", "_"))
            ]
            if len(written) > 1:
                raise ValueError(f"found {len(written)} files in {draft}/{hour}, expected one")
            # The list is empty if the file was moved before a crash.
            for name in written:
                self._folder.move(
                    f"{draft}/{hour}/{name}", f"{self._home}/{hour}/{piece.file_name}"
                )
        self._folder.remove(draft)

    def _gather_notes(self, number: int) -> None:
        notes = f"{self._home}/_pieces"
        before = self._folder.names(notes)
        self._folder.write_new(f"{notes}/{number:08}{_ALL}", encode(self.pieces.all))
        for name in before:
            self._folder.remove(f"{notes}/{name}")

    def _note(self, name: str) -> bytes:
        return self._folder.read(f"{self._home}/_pieces/{name}")
