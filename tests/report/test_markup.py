import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hubscout.report.markup import Markup, copyable, json_script, number, table, tag, text


@given(st.text())
def test_text_of_a_run_never_becomes_markup(value: str) -> None:
    made = tag("p", value, title=value)
    inside = made.removeprefix("<p title=").removesuffix("</p>")
    assert "<" not in inside
    assert made.count('"') == 2  # those around the attribute


@given(
    st.recursive(
        st.text() | st.integers() | st.none(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)
    )
)
def test_a_data_block_cannot_be_ended_from_inside_and_reads_back(data: object) -> None:
    made = json_script("data", data)
    content = made.removeprefix('<script type="application/json" id="data">').removesuffix("</script>")
    assert "<" not in content
    assert json.loads(content) == data


@given(st.text())
def test_a_template_escapes_what_it_is_filled_with(value: str) -> None:
    made = copyable(value)
    assert made.startswith(f'<div class="command"><code>{text(value)}</code><button ')  # nothing between the tags
    assert copyable(tag("b", value)).startswith(f'<div class="command"><code><b>{text(value)}</b></code>')


def test_markup_is_not_escaped_twice() -> None:
    inner = tag("b", "a & b")
    assert tag("p", inner) == "<p><b>a &amp; b</b></p>"
    assert text(inner) is inner


def test_attributes_may_be_missing_or_stand_alone() -> None:
    assert tag("input", type="radio", checked=True, value=None, disabled=False) == '<input type="radio" checked>'
    assert isinstance(tag("br"), Markup)


@pytest.mark.parametrize(("value", "shown"), [(1.0, "1"), (0.25, "0.2"), (-0.04, "0"), (123.46, "123.5")])
def test_coordinates_are_short(value: float, shown: str) -> None:
    assert number(value) == shown


def test_a_table_names_its_rows_and_columns() -> None:
    made = table(("Model", "Score"), [("<a>", "1")])
    assert '<th scope="row">&lt;a&gt;</th><td class="number">1</td>' in made
    assert '<th class="number" scope="col">Score</th>' in made
