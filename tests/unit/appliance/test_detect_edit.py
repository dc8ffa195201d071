"""The text of a configuration file after a proposal is inserted and after it is removed."""

import pytest

from appliance.config.document import read_document
from appliance.detect.detection import Proposal
from appliance.detect.edit import EditRefused, with_proposal, without
from appliance.mill.home import CODE

PROPOSAL = Proposal(
    "shop",
    {"paths": ["watched/shop/**"], "topic": "logs.shop"},
    {"topic": "logs.shop", "format": "regex", "pattern": "^(?<a>[^,: #]*)'\"{}$", "time": "a"},
    (
        {"name": "shop_lines", "from": "shop", "measure": "count"},
        {"name": "shop_by_a", "from": "shop", "key": "a", "measure": "count"},
    ),
)
DEFAULTS = ({"paths": ["watched/text/**"], "topic": "logs.text"},)
SHIPPED = (CODE / "configs" / "millrace.yaml").read_text()

BLOCK = """\
# head
collector:
  compression: none   # why
  inputs:
  - paths:
    - a/**   # the first
    topic: logs.a
    # below the input

  # behind the inputs
stream:
    from:   # sources
        a: {topic: logs.a, format: raw}   # raw
    metrics:
        - name: lines
          from: a
          measure: count
# foot
"""
FLOW = """\
collector: {inputs: [{paths: [a], topic: logs.a}], compression: none}
stream: {from: {a: {topic: logs.a, format: raw}}, metrics: []} # end
"""
TRAILING = """\
collector:
  inputs: [
    {paths: [a], topic: logs.a},   # a
  ]
stream:
  from: {
    a: {topic: logs.a, format: raw}   # last, without a comma
  }
  metrics: []
"""
EMPTY_KEYS = """\
collector:
  inputs:
stream:   # nothing yet

sinks: {redis: {}, mysql: {}}
"""
LITERAL = """\
stream:
  metrics: []
  from:
    a:
      topic: logs.a
      format: regex
      pattern: |-
        ^(?<a>.*)$

sinks: {}
"""


@pytest.mark.parametrize(
    "text",
    [
        SHIPPED,
        BLOCK,
        FLOW,
        TRAILING,
        EMPTY_KEYS,
        LITERAL,
        "",
        "# only a comment",
        "sinks: {}",
        "stream:",
        "stream: {}\n",
        SHIPPED.rstrip("\n"),
        SHIPPED.replace("\n", "\r\n"),
        f"\ufeff{BLOCK}",
    ],
    ids=[
        "shipped", "block", "flow", "trailing", "empty_keys", "literal", "empty", "comment",
        "section", "bare", "brackets", "no_end", "crlf", "mark",
    ],
)  # fmt: skip
def test_only_the_additions_are_new_and_go_again(text: str) -> None:
    edited = with_proposal(text, PROPOSAL, DEFAULTS)
    root = read_document(edited.text.replace("\r\n", "\n"), "m").root
    stream, collector = root["stream"], root["collector"]
    assert isinstance(stream, dict)
    assert isinstance(collector, dict)
    assert stream["from"]["shop"] == PROPOSAL.stream
    assert stream["metrics"][-2:] == list(PROPOSAL.metrics)
    assert collector["inputs"][-1] == PROPOSAL.collector
    # Every line of the original file is still there, in the original order.
    kept = iter(edited.text.splitlines())
    if "{" not in text or text in (SHIPPED, BLOCK):
        assert all(line in kept for line in text.splitlines())
    assert without(edited.text, edited.inserted, "shop", ["shop_lines", "shop_by_a"]) == text


def test_inputs_that_held_unsaid_are_said() -> None:
    edited = with_proposal("stream: {}\n", PROPOSAL, DEFAULTS)
    collector = read_document(edited.text, "m").root["collector"]
    assert collector == {"inputs": [*DEFAULTS, PROPOSAL.collector]}


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("{stream: {}}", "block style"),
        ("stream: {metrics: null}", "is not a list"),
        ("stream: []", "is not a mapping"),
        ("stream: ~\n", "is not a mapping"),
        ("x: &a {from: {}}\nstream: *a\n", "without a change of other keys"),
    ],
)
def test_what_cannot_be_edited_safely_is_refused(text: str, word: str) -> None:
    with pytest.raises(EditRefused, match=word):
        with_proposal(text, PROPOSAL, DEFAULTS)


def test_changed_lines_are_not_taken_out() -> None:
    edited = with_proposal(SHIPPED, PROPOSAL, DEFAULTS)
    changed = edited.text.replace("measure: count}\n\nsinks", "measure: count, top: 3}\n\nsinks")
    assert changed != edited.text
    with pytest.raises(EditRefused, match="changed since"):
        without(changed, edited.inserted, "shop", ["shop_lines", "shop_by_a"])


def test_changes_elsewhere_stay() -> None:
    edited = with_proposal(SHIPPED, PROPOSAL, DEFAULTS)
    changed = edited.text.replace("trigger: 100ms", "trigger: 200ms")
    after = without(changed, edited.inserted, "shop", ["shop_lines", "shop_by_a"])
    assert after == SHIPPED.replace("trigger: 100ms", "trigger: 200ms")
