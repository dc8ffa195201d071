"""The result of one turn of reading.

Room: above `generation`. Data only.
"""

from dataclasses import dataclass

from collector.identity.generation import Generation
from collector.text.lines import Block


@dataclass(frozen=True, slots=True)
class Turn:
    """Blocks to hand out in order, and whether another turn would return more.

    `wake_at_ms`: take another turn at this time. `others`: these need a turn too. `joined`: the
    first block begins with this generation's pending event, which is handed out with it.
    """

    blocks: tuple[Block, ...] = ()
    has_more: bool = False
    wake_at_ms: int | None = None
    others: tuple[Generation, ...] = ()
    joined: Generation | None = None
