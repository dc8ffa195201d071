"""The list of functions for expressions, and the page that is generated from it."""

from stream.config.expression import unknown_columns
from stream.config.functions import PAGE, known_functions
from tests.harness import ROOT
from tests.harness.functions_page import functions_page


def test_the_page_is_made_of_the_list() -> None:
    """If this fails, run `python -m tests.harness.functions_page`."""
    assert (ROOT / PAGE).read_text(encoding="utf-8") == functions_page()


def test_each_example_calls_its_function_and_passes_the_check() -> None:
    for one in known_functions().values():
        assert f"{one.name}(" in one.example, one.name
        assert one.call.startswith(f"{one.name}("), one.name
        assert unknown_columns(one.example, ["line"]) is None, one.name
