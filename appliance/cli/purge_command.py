"""`millrace stream purge`: ends the notice that windows have before `keep` deletes them."""

import time

from appliance.cli import context
from appliance.cli.cluster import YesOption, confirm
from appliance.cli.options import EnvelopeOption
from appliance.cli.output import tell
from appliance.cli.stream_database import in_mysql


def purge(yes: YesOption = False, as_json: EnvelopeOption = False) -> None:
    """Delete at once the windows that are older than a `keep` which has not begun.

    A `keep` by which windows go that are there begins after a week, and is told meanwhile. The
    running stream deletes them within ten minutes; nothing brings them back.
    """
    from sinks.keeping import words
    from sinks.mysql.purging import begin_now, read_terms

    mill, _ = context.load_mill()
    now_s = int(time.time())
    terms = in_mysql(mill, "a purge", read_terms).values()
    waiting = [term for term in terms if term.from_s > now_s]
    if waiting:
        confirm([words(term) for term in waiting], yes)
        in_mysql(mill, "a purge", lambda cursor: begin_now(cursor, now_s))
    cells = sum(term.cells for term in waiting)
    text = f"{cells:,} cells go now" if waiting else "nothing waits to be deleted"
    tell(text, "purge/1", {"cells": cells, "sizes": len(waiting)}, as_json)
