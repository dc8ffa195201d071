"""Chance in tests: one seed, printed when the test fails, that replays it."""

import os
import random


def seeded(name: str) -> random.Random:
    """A generator for a random test; run again with MILLRACE_SEED set to what it printed."""
    seed = os.environ.get("MILLRACE_SEED") or str(random.SystemRandom().randrange(2**32))
    print(f"{name}: replay with MILLRACE_SEED={seed}")
    return random.Random(f"{name}:{seed}")
