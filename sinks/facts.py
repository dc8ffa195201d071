"""The state of the sinks, as the stream's status shows it.

This module is pure.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from sinks.keeping import Term
from sinks.rows import size_text


@dataclass(frozen=True, slots=True)
class SinkFacts:
    """The state of the sinks at one moment; the fields are those of `sinks.store.Sinks`."""

    states: Mapping[str, str] = field(default_factory=dict)
    scrubbed_total: int = 0
    left_out_total: int = 0
    notices: Sequence[Term] = ()
    untended: str | None = None

    def details(self) -> dict[str, object]:
        """Return all fields as JSON values, except `untended`, which is reported as a problem."""
        return {
            "sinks": dict(self.states),
            "scrubbed_total": self.scrubbed_total,
            "left_out_total": self.left_out_total,
            "notices": [
                {
                    "metric": term.metric,
                    "size": size_text(term.size_s),
                    "keep": size_text(term.keep_s),
                    "cells": term.cells,
                    "from_ms": term.from_s * 1000,
                }
                for term in self.notices
            ],
        }
