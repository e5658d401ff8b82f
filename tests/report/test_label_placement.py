"""Names: none over another, each beside its own point."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from hubscout.report.charts.label_placement import Box, Wish, place, spread

boxes = st.lists(st.tuples(st.floats(0, 800), st.floats(0, 400)), min_size=1, max_size=40)


@given(boxes)
def test_no_label_covers_another_or_leaves_the_paper(places: list[tuple[float, float]]) -> None:
    area = Box(0, 0, 800, 400)
    wishes = [Wish(f"model_{index}", x, y, index, must=index < 5) for index, (x, y) in enumerate(places)]
    labels = [label for label in place(wishes, area, size=12) if label is not None]
    for index, label in enumerate(labels):
        assert label.box.within(area)
        assert not any(label.box.meets(other.box) for other in labels[index + 1 :])


@given(boxes)
def test_a_label_is_beside_its_own_point_or_on_a_line_to_it(places: list[tuple[float, float]]) -> None:
    places = sorted(set(places))
    wishes = [Wish(f"model_{index}", x, y, index, must=index < 5) for index, (x, y) in enumerate(places)]
    for wish, label in zip(wishes, place(wishes, Box(0, 0, 800, 400), size=12), strict=True):
        if label is None or label.leader is not None:
            assert label is None or label.leader == (wish.x, wish.y)
            continue
        own = label.box.distance(wish.x, wish.y)
        assert all(own < label.box.distance(x, y) for x, y in places if (x, y) != (wish.x, wish.y))


def test_of_two_close_points_the_name_of_one_is_not_at_the_other() -> None:
    left, right = place([Wish("lite0", 100, 50, 1), Wish("lite2", 112, 50, 0)], Box(0, 0, 300, 100), size=12)
    assert left is not None
    assert left.anchor == "end"
    assert right is not None
    assert right.anchor == "start"


@given(st.lists(st.floats(0, 300), min_size=1, max_size=20))
def test_names_at_the_ends_of_curves_keep_their_distance(places: list[float]) -> None:
    moved = sorted(spread(places, 10, 0, 300))
    assert all(after - before >= 10 - 1e-6 for before, after in pairwise(moved))
