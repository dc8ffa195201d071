"""Topic names made from wildcards: the names that a template gives, and which templates are
valid."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.config.settings import CollectorSection
from collector.config.topics import template_of

WORDS = st.text("abc.-_01", min_size=1, max_size=5)


def test_a_name_is_no_template() -> None:
    assert template_of("logs.access") is None


def test_words_take_their_places() -> None:
    template = template_of("{2}.logs.{1}{2}")
    assert template is not None
    assert template.places_max == 2
    assert template.filled(["a", "b"]) == "b.logs.ab"


@given(WORDS, WORDS)
def test_what_a_template_has_made_it_may_make(first: str, second: str) -> None:
    template = template_of("x.{2}-{1}")
    assert template is not None
    assert template.makes(template.filled([first, second]))


@pytest.mark.parametrize("topic", ["logs.", "log.a", "xlogs.a", "logs.a b", ""])
def test_other_topics_it_does_not_make(topic: str) -> None:
    template = template_of("logs.{1}")
    assert template is not None
    assert not template.makes(topic)


@pytest.mark.parametrize("topic", ["logs.{}", "logs.{0}", "logs.{x}", "logs.{1", "a}", "{{1}}"])
def test_a_brace_without_a_number_is_refused(topic: str) -> None:
    with pytest.raises(ValueError, match="for what the wildcards of the paths match"):
        template_of(topic)


def test_a_section_tells_fixed_topics_from_those_that_may_come() -> None:
    section = CollectorSection.model_validate(
        {
            "inputs": [
                {"paths": ["w/*/*"], "topic": "logs.{1}"},
                {"paths": ["v/*"], "topic": "other"},
            ]
        }
    )
    assert section.topics == ("other",)
    found = [name for name in ("other", "logs.web", "logs.", "more") if section.may_write(name)]
    assert found == ["other", "logs.web"]
