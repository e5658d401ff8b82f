"""The tools that run the documentation can fail: a wrong page is found out."""

from __future__ import annotations

from pathlib import Path

import pytest
from blocks import Block, command_lines, read_blocks
from running import Page, check_commands, check_output, check_python


def page(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "page.md"
    path.write_text(text)
    return path


def block(language: str, source: str) -> Block:
    return Block("page.md", 1, language, source)


def test_blocks_have_place_language_and_output(tmp_path: Path) -> None:
    shown = "# A\n\n```python\nprint(1)\n```\n\n<!-- output -->\n\n```text\n1\n```\n\n"
    first, second = read_blocks(page(tmp_path, shown + "<!-- not run: no net -->\n```bash\nls\n```\n"))
    assert (first.line, first.language, first.source, first.output) == (4, "python", "print(1)\n", "1\n")
    assert (second.language, second.not_run) == ("bash", "no net")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("```python\n", "not closed"),
        ("```\nx\n```\n", "language ''"),
        ("<!-- output -->\n```text\n1\n```\n", "output of what"),
        ("<!-- not run: x -->\n\nwords\n", "should follow"),
    ],
)
def test_a_broken_page_is_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_blocks(page(tmp_path, text))


def test_an_indented_block_is_read(tmp_path: Path) -> None:
    (only,) = read_blocks(page(tmp_path, "- item\n\n    ```python\n    x = 1\n    ```\n"))
    assert only.source == "x = 1\n"


def test_lines_are_joined() -> None:
    assert command_lines("# why\nhubscout rank a \\\n    -m b\n\nls\n") == ["hubscout rank a -m b", "ls"]


@pytest.mark.parametrize(
    ("expected", "printed", "agrees"),
    [
        ("score 0.300", "score 0.310", True),
        ("score 0.30", "score 0.32", False),
        ("a 1\n…\nc", "a 1\nb\nc", True),
        ("a … z", "a 1 2 z", True),
        ("b\na", "a\nb", False),
        ("1 pypi/lite0 5.42M", "│ 1 │ pypi/lite0 │ 5.42M │", True),
        ("pypi/lite0", "pypi/lite1", False),
        ("lite1 9", "lite2 9", False),
    ],
)
def test_output_is_compared(expected: str, printed: str, agrees: bool) -> None:
    if agrees:
        check_output(expected, printed)
    else:
        with pytest.raises(AssertionError):
            check_output(expected, printed)


def test_a_block_that_fails_fails() -> None:
    with pytest.raises(ZeroDivisionError):
        Page().run(block("python", "1 / 0\n"))
    with pytest.raises(AssertionError, match="status"):
        Page().run(block("bash", "false\n"))
    with pytest.raises(AssertionError, match="status 2"):
        Page().run(block("bash", "hubscout rank /no/such/folder -m pypi/x\n"))


@pytest.mark.parametrize(
    "line",
    ["hubscout rank d/ --modles x", "hubscout rnak d/", "hubscout tune d/", "hubscout tune d/ --model a --epochs x"],
)
def test_a_wrong_command_is_found(line: str) -> None:
    with pytest.raises((Exception, SystemExit)):
        check_commands(block("bash", line + "\n"))


def test_a_right_command_is_counted() -> None:
    text = "hubscout rank d/ -m 'timm/a*' --out run/\ntorchrun --nproc-per-node 2 -m hubscout tune d/ --model a\n"
    assert check_commands(block("bash", text)) == 2


@pytest.mark.parametrize(
    "source",
    ["hs.rnak(1)", "hs.rank(1, 2, metrisc=3)", "hs.tune(1, 2, epoch=3)", "from hubscout.tasks import Taks"],
)
def test_a_wrong_name_is_found(source: str) -> None:
    with pytest.raises(AssertionError):
        check_python(block("python", source + "\n"))
