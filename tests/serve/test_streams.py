import json
from pathlib import Path

from hubscout.serve.streams import Follower, RunFollower


def line(**values: object) -> str:
    return json.dumps(values) + "\n"


def test_only_whole_new_lines_come(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    follower = Follower(path)
    assert follower.look() == (False, [])
    path.write_text(line(event="a") + '{"event": "b')
    assert follower.look() == (False, [{"event": "a"}])
    assert follower.look() == (False, [])
    with path.open("a") as file:
        file.write('"}\nnonsense\n[1]\n' + line(event="c"))
    assert follower.look() == (False, [{"event": "b"}, {"event": "c"}])


def test_a_file_that_begins_anew_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.write_text(line(event="a", time=1) * 3)
    follower = Follower(path)
    follower.look()
    path.write_text("")
    assert follower.look() == (True, [])
    path.write_text(line(event="b"))
    assert follower.look() == (False, [{"event": "b"}])


def test_also_when_it_has_grown_past_the_old_place_or_was_replaced(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text(line(event="a"))
    follower = Follower(path)
    follower.look()
    path.write_text(line(event="b") * 50)
    anew, lines = follower.look()
    assert (anew, len(lines)) == (True, 50)
    other = tmp_path / "other"
    other.write_text(line(event="b") * 60)
    other.replace(path)
    anew, lines = follower.look()
    assert (anew, len(lines)) == (True, 60)


def test_a_long_file_comes_in_pieces(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text("".join(line(step=step, padding="x" * 1000) for step in range(3000)))
    follower = Follower(path)
    steps: list[int] = []
    while lines := follower.look()[1]:
        assert len(lines) < 2000
        steps += [entry["step"] for entry in lines]
    assert steps == list(range(3000))


def test_all_files_of_a_run_are_followed_but_no_links(tmp_path: Path) -> None:
    run = tmp_path / "run"
    (run / "b-tuning-0").mkdir(parents=True)
    (run / "b-tuning-0" / "metrics.jsonl").write_text(line(step=1))
    follower = RunFollower(run)
    assert follower.look() == (False, [("b-tuning-0/metrics.jsonl", {"step": 1})])
    (tmp_path / "secret").write_text(line(secret=1))
    (run / "events.jsonl").symlink_to(tmp_path / "secret")
    (run / "kd-0").mkdir()
    (run / "kd-0" / "metrics.jsonl").write_text(line(step=2))
    assert follower.look() == (False, [("kd-0/metrics.jsonl", {"step": 2})])
    (run / "kd-0" / "metrics.jsonl").write_text("")
    assert follower.look() == (True, [("b-tuning-0/metrics.jsonl", {"step": 1})])
