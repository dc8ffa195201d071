"""Make topic names from the text that the wildcards of a glob matched: `logs.{1}`.

This module is pure. `{1}` is replaced by the text that the glob's first wildcard matched, `{2}` by
the text of the second wildcard, and so on.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

_PLACEHOLDER = re.compile(r"\{([1-9][0-9]?)\}")
_LEGAL = "[A-Za-z0-9._-]+"


@dataclass(frozen=True, slots=True)
class TopicTemplate:
    """A template for topic names.

    `texts` are the fixed parts. Between them are the texts that wildcards matched. `places` are the
    numbers of these wildcards.
    """

    texts: tuple[str, ...]
    places: tuple[int, ...]

    @property
    def places_max(self) -> int:
        """The least number of wildcards that a glob must have for this template."""
        return max(self.places)

    def filled(self, words: Sequence[str]) -> str:
        """Return the topic in which these texts replace the placeholders."""
        first, *rest = self.texts
        found = zip(self.places, rest, strict=True)
        return first + "".join(words[place - 1] + text for place, text in found)

    def makes(self, topic: str) -> bool:
        """Tell whether the template can make this topic."""
        return re.fullmatch(_LEGAL.join(map(re.escape, self.texts)), topic) is not None


def template_of(topic: str) -> TopicTemplate | None:
    """Return the template in a configured topic; None for a plain name. Raises ValueError."""
    texts = _PLACEHOLDER.split(topic)
    if any(brace in text for text in texts[::2] for brace in "{}"):
        raise ValueError(
            f"found {topic!r}, expected a topic name, with {{1}}, {{2}} … for what the wildcards of"
            " the paths match"
        )
    if len(texts) == 1:
        return None
    return TopicTemplate(tuple(texts[::2]), tuple(map(int, texts[1::2])))
