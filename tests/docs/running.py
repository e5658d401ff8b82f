"""Runs the code blocks of a page in order, as a reader would, and compares what they print with what the page says."""

from __future__ import annotations

import ast
import contextlib
import inspect
import io
import re
import shlex
import subprocess
from typing import Any

from blocks import Block, command_lines

_NUMBER = re.compile(r"([-+]?\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?)")
_SHELL_ONLY = re.compile(r"[|><;&`]|\$\(")


class Page:
    """The state that the blocks of one page share."""

    def __init__(self) -> None:
        self.names: dict[str, Any] = {"__name__": "__main__"}

    def run(self, block: Block) -> str:
        """Run a block and return what it printed."""
        return self._python(block) if block.language == "python" else run_shell(block.source)

    def _python(self, block: Block) -> str:
        # Padded, so that a traceback shows the line of the page.
        code = compile("\n" * (block.line - 1) + block.source, block.page, "exec")
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(code, self.names)
        return printed.getvalue()


def run_shell(source: str) -> str:
    """Run a shell block. `hubscout` runs in this process, which saves seconds a command; the rest in a real shell."""
    if "<<" in source:
        return _bash(source)
    return "".join(_one_command(line) for line in command_lines(source))


def _one_command(line: str) -> str:
    if not line.startswith("hubscout ") or _SHELL_ONLY.search(re.sub(r"'[^']*'|\"[^\"]*\"", "", line)):
        return _bash(line)
    from typer.testing import CliRunner

    from hubscout.cli.app import app

    arguments = _expand(line)[1:]
    result = CliRunner().invoke(app, arguments)
    if result.exit_code != 0:
        raise AssertionError(f"{line}\nended with status {result.exit_code}:\n{result.output}") from result.exception
    return result.stdout


def _expand(line: str) -> list[str]:
    """The words of a command as the shell would hand them over: quotes taken off, wildcards filled in."""
    found = subprocess.run(["bash", "-c", f"printf '%s\\0' {line}"], check=True, capture_output=True, text=True)
    return found.stdout.split("\0")[:-1]


def _bash(source: str) -> str:
    found = subprocess.run(["bash", "-euo", "pipefail", "-c", source], capture_output=True, text=True, check=False)
    if found.returncode != 0:
        raise AssertionError(f"{source}\nended with status {found.returncode}:\n{found.stdout}{found.stderr}")
    return found.stdout


def check_output(expected: str, printed: str, *, roughly: bool = False) -> None:
    """Every line of `expected` must occur in what was printed, in order.

    Words must be the same, and numbers nearly so: within 3% and 0.004, or `roughly` within 30% and 0.3. An ellipsis
    stands for anything. Rules of tables and runs of spaces do not count.
    """
    share, size = (0.3, 0.3) if roughly else (0.03, 0.004)
    actual = [line for line in map(words_of, printed.splitlines()) if line]
    position = 0
    for line in filter(None, map(words_of, expected.splitlines())):
        if line == ["…"]:
            continue
        place = next((n for n in range(position, len(actual)) if same(line, actual[n], share, size)), None)
        assert place is not None, f"The page promises\n  {' '.join(line)}\nwhich is not in\n{printed}"
        position = place + 1


def words_of(line: str) -> list[str]:
    """The words of a line, without the rules of tables."""
    return re.sub(r"[│┃┏┓┗┛┡┩└┘├┤┬┴┼┳┻╇╈━─╭╮╰╯]+", " ", line).split()


def same(expected: list[str], actual: list[str], share: float, size: float) -> bool:
    """Whether two lines say the same, numbers being within `share` of themselves plus `size`."""
    if not expected:
        return not actual
    if expected[0] == "…":
        return any(same(expected[1:], actual[skip:], share, size) for skip in range(len(actual) + 1))
    if not actual or not _same_word(expected[0], actual[0], share, size):
        return False
    return same(expected[1:], actual[1:], share, size)


def _same_word(expected: str, actual: str, share: float, size: float) -> bool:
    if expected == actual:
        return True
    ours, theirs = _NUMBER.split(expected), _NUMBER.split(actual)
    if len(ours) != len(theirs) or ours[::2] != theirs[::2] or len(ours) == 1:
        return False
    values = [
        (float(a.replace(",", "")), float(b.replace(",", ""))) for a, b in zip(ours[1::2], theirs[1::2], strict=True)
    ]
    return all(abs(a - b) <= size + share * abs(a) for a, b in values)


def check_commands(block: Block) -> int:
    """Parse every `hubscout` command of a block against the real command line; how many there were."""
    import typer
    import typer.main

    from hubscout.cli.app import app

    group: Any = typer.main.get_command(app)
    count = 0
    for line in command_lines(block.source):
        words = shlex.split(line.split(" > ")[0].split(" | ")[0], comments=True)
        if "hubscout" not in words:
            continue
        arguments = words[words.index("hubscout") + 1 :]
        if not arguments or words[words.index("hubscout") - 1 : words.index("hubscout")] in (["install"], ["cd"]):
            continue
        context = group.make_context("hubscout", list(arguments))
        command = group.get_command(context, arguments[0])
        assert command is not None, f"{block.place}: hubscout has no command {arguments[0]!r}"
        inner = arguments[1:]
        while hasattr(command, "commands") and inner:
            command, inner = command.commands[inner[0]], inner[1:]
        with contextlib.suppress(typer.Exit):  # an option that prints and ends, such as --list-arguments
            command.make_context(arguments[0], inner)
        count += 1
    return count


def check_python(block: Block) -> None:
    """Compile a block that is not run, and check the names and keywords that it takes from hubscout."""
    tree = ast.parse(block.source, block.page)
    import hubscout

    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("hubscout"):
            module = __import__(node.module or "", fromlist=["*"])
            for alias in node.names:
                assert hasattr(module, alias.name), f"{block.place}: {node.module} has no {alias.name}"
        if isinstance(node, ast.Call) and (name := _called(node.func)) is not None:
            function = _find(hubscout, name)
            assert function is not None, f"{block.place}: hubscout has no {name}"
            allowed = _keywords(name, function)
            for keyword in (one for one in node.keywords if one.arg is not None):
                assert allowed is None or keyword.arg in allowed, f"{block.place}: {name} takes no {keyword.arg}"


def _called(function: ast.expr) -> str | None:
    """`hs.rank` → "rank", `hs.Task.from_hf` → "Task.from_hf"; None for what is not hubscout's."""
    text = ast.unparse(function)
    return text.removeprefix("hs.") if re.fullmatch(r"hs(\.\w+)+", text) else None


def _find(module: Any, name: str) -> Any:
    found = module
    for part in name.split("."):
        found = getattr(found, part, None)
    return found


def _keywords(name: str, function: Any) -> set[str] | None:
    import dataclasses

    from hubscout.features import ExtractionOptions
    from hubscout.tuning import TuningArguments

    parameters = inspect.signature(function).parameters
    if name in (kinds := {"tune": TuningArguments, "rank": ExtractionOptions}):
        return {*parameters, *(field.name for field in dataclasses.fields(kinds[name]))}
    open_ended = any(one.kind is inspect.Parameter.VAR_KEYWORD for one in parameters.values())
    return None if open_ended else set(parameters)
