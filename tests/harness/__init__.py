"""Helpers of the tests. `tests/README.md` says which one to use for what."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
"""The folder of this checkout."""
