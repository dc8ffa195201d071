"""Generate made-up web traffic: a few busy pages, some errors, a few visitors.

This module is pure: randomness and time are arguments, so the same seed and time give the same
lines.
"""

import random
from datetime import datetime

PATHS = (
    ("/", 30),
    ("/products", 18),
    ("/products/42", 9),
    ("/cart", 8),
    ("/search?q=mill+wheel", 7),
    ("/static/app.js", 12),
    ("/static/style.css", 11),
    ("/api/orders", 6),
    ("/login", 4),
    ("/old-page", 2),
)
STATUSES = ((200, 90), (304, 4), (404, 3), (301, 2), (500, 1))
AGENTS = (
    "Mozilla/5.0 (X11; Linux x86_64) Gecko/20100101 Firefox/142.0",
    "Mozilla/5.0 (Windows NT 10.0; Win64; x64) Chrome/139.0 Safari/537.36",
    "curl/8.5.0",
)
VISITORS = 200


def access_line(chance: random.Random, now: datetime) -> str:
    """Return one line in the combined format with the time `now`, with its line end."""
    path = _pick(chance, PATHS)
    status = _pick(chance, STATUSES)
    # Use addresses from the networks that are reserved for examples.
    address = f"203.0.113.{1 + int(chance.betavariate(1, 3) * VISITORS)}"
    method = "POST" if path == "/api/orders" else "GET"
    size = "-" if status == 304 else str(int(chance.lognormvariate(8, 1)))
    return (
        f"{address} - - [{now:%d/%b/%Y:%H:%M:%S} +0000]"
        f' "{method} {path} HTTP/1.1" {status} {size} "-" "{chance.choice(AGENTS)}"\n'
    )


def _pick(chance: random.Random, weighted: tuple[tuple[object, int], ...]) -> object:
    values, weights = zip(*weighted, strict=True)
    return chance.choices(values, weights)[0]
