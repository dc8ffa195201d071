"""`millrace stream purge`: deletes old windows now, before the week of notice for a new `keep` has
ended."""

import time
from typing import TYPE_CHECKING

from appliance.cli import context
from appliance.cli.cluster import YesOption, confirm
from appliance.cli.options import EnvelopeOption
from appliance.cli.stream_database import in_mysql
from appliance.output import tell

if TYPE_CHECKING:
    from sinks.keeping import Term


def purge(yes: YesOption = False, as_json: EnvelopeOption = False) -> None:
    """Delete windows now, before the notice of a new `keep` ends.

    A new `keep` that would delete existing windows takes effect after a week. Until then the mill
    shows a notice. With this command the running stream deletes the windows within ten minutes.
    They cannot be restored.
    """
    from appliance.checks.keeps import definitions_of
    from sinks.keeping import waiting, words
    from sinks.mysql.purging import begin_now, read_terms

    mill, _ = context.load_mill()
    now_s = int(time.time())
    told = waiting(in_mysql(mill, "a purge", read_terms), definitions_of(mill.config), now_s)
    ended: list[Term] = []
    if told:
        confirm([words(term) for term in told], yes)
        ended = in_mysql(mill, "a purge", lambda cursor: begin_now(cursor, told, now_s))
    cells = sum(term.cells for term in ended)
    text = f"the stream deletes {cells:,} cells now" if ended else "there is nothing to delete"
    tell(text, "purge/1", {"cells": cells, "sizes": len(ended)}, as_json)
