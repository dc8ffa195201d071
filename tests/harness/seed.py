"""Random numbers in tests. A failed test prints the seed that repeats the failure."""

import os
import random


def seeded(name: str) -> random.Random:
    """Return a generator for a random test. To repeat a failure, set MILLRACE_SEED to the
    printed value."""
    seed = os.environ.get("MILLRACE_SEED") or str(random.SystemRandom().randrange(2**32))
    print(f"{name}: replay with MILLRACE_SEED={seed}")
    return random.Random(f"{name}:{seed}")
