"""Paths of JSON as one schema, and the expression that reads each out of a parsed line."""

from stream.parse.json_paths import Steps, json_fields, json_text, json_tree

LINE = "fields"


def fields_of(*paths: Steps) -> str:
    return json_fields(json_tree(paths))


def text_of(wanted: Steps, *others: Steps) -> str:
    return json_text(json_tree([wanted, *others]), LINE, wanted)


def test_every_leaf_is_read_as_text() -> None:
    assert (
        fields_of(("a",), ("b", "c"), ("b", "d"))
        == "`a` STRING, `b` STRUCT<`c`: STRING, `d`: STRING>"
    )
    assert fields_of(("list", 0, "name")) == "`list` ARRAY<STRUCT<`name`: STRING>>"


def test_columns_stand_in_the_order_of_their_names_whatever_the_paths_come_in() -> None:
    assert fields_of(("b",), ("a",)) == fields_of(("a",), ("b",)) == "`a` STRING, `b` STRING"


def test_elements_share_one_schema_whichever_of_them_is_wanted() -> None:
    assert fields_of(("l", 3), ("l", 0)) == "`l` ARRAY<STRING>"
    assert fields_of(("l", 3, "x"), ("l", 0, "y")) == "`l` ARRAY<STRUCT<`x`: STRING, `y`: STRING>>"


def test_a_place_that_is_wanted_in_two_shapes_is_read_as_text() -> None:
    assert fields_of(("a",), ("a", "b")) == "`a` STRING"
    assert fields_of(("a", 0), ("a", "b")) == "`a` STRING"


def test_a_name_may_hold_dots_and_backticks() -> None:
    assert fields_of(("a.b`c",)) == "`a.b``c` STRING"
    assert text_of(("a.b`c",)) == "fields.`a.b``c`"


def test_a_path_goes_down_the_parsed_line() -> None:
    assert text_of(("a", "b")) == "fields.`a`.`b`"
    assert text_of(("a", 2, "b")) == "get(fields.`a`, 2).`b`"


def test_what_lies_below_a_text_is_read_out_of_it_anew() -> None:
    assert text_of(("a", "b"), ("a",)) == "from_json(fields.`a`, '`b` STRING').`b`"
    assert text_of(("a", 1), ("a",)) == "get(from_json(fields.`a`, 'ARRAY<STRING>'), 1)"


def test_only_the_step_below_a_text_is_read_anew() -> None:
    deep = text_of(("a", "b", "c"), ("a",))
    assert deep == "from_json(fields.`a`, '`b` STRUCT<`c`: STRING>').`b`.`c`"
