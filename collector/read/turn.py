"""The result of reading one file once."""

from dataclasses import dataclass

from collector.identity.generation import Generation
from collector.text.lines import Block


@dataclass(frozen=True, slots=True)
class Turn:
    """The blocks read, to be handed out in order, and whether another read would return more.

    `wake_at_ms`: read the file again at this time. `others`: the files that must be read now too.
    `joined`: the generation whose open event is the beginning of the first block. Both are handed
    out together.
    """

    blocks: tuple[Block, ...] = ()
    has_more: bool = False
    wake_at_ms: int | None = None
    others: tuple[Generation, ...] = ()
    joined: Generation | None = None
