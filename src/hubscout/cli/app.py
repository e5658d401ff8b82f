"""The command `hubscout`: finds its sub-commands and turns errors into one line and an exit status."""

from __future__ import annotations

import dataclasses
import importlib
import os
import re
import shlex
import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer
import typer.core
import typer.main

from hubscout import __version__
from hubscout.credentials import strip_credentials
from hubscout.errors import (
    HubscoutError,
    InputError,
    InterruptedRunError,
    MissingDependencyError,
    UnknownNameError,
    one_line,
)
from hubscout.runs.texts import listing

PANELS = {
    "Start here: find a model, tune it, use it": {"rank": "rank", "tune": "tune", "predict": "predict"},
    "Look closer": {"report": "run_pages", "serve": "run_pages", "check": "inspections", "models": "listings"},
    "Go further": {
        "race": "race",
        "select": "saved_rankings",
        "soup": "tune",
        "evaluate": "saved_rankings",
        "reference": "saved_rankings",
        "merge": "saved_rankings",
    },
    "This installation": {"demo": "demo", "doctor": "inspections", "cache": "listings"},
}
"""In the order of the help: the commands, and which module of `hubscout.cli` has each in its typer app called `app`."""

COMMANDS = {name: module for panel in PANELS.values() for name, module in panel.items()}

EXIT_ERROR = 1
EXIT_BAD_INPUT = 2
EXIT_SOME_FAILED = 3
EXIT_WORSE_THAN_GUESSING = 4
EXIT_INTERRUPTED = 130


class UnknownCommandError(UnknownNameError):
    """A sub-command that there is not."""

    what = "command"


class Commands(typer.core.TyperGroup):
    """A group whose commands are imported when they are asked for, and whose errors are one line."""

    def list_commands(self, ctx: Any) -> list[str]:
        """All of them, in the order of the help."""
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Import the command's module and build it."""
        if cmd_name not in COMMANDS:
            return None
        found: Any = typer.main.get_command(importlib.import_module(f"hubscout.cli.{COMMANDS[cmd_name]}").app)
        command = found.commands[cmd_name] if cmd_name in getattr(found, "commands", ()) else found
        command.name = cmd_name
        command.rich_help_panel = next(title for title, panel in PANELS.items() if cmd_name in panel)
        # Lines of a docstring are as long as the code's; the terminal breaks paragraphs to its own width.
        command.help = re.sub(r"(?<!\n)\n(?!\n)", " ", command.help or "")
        return command

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find the command; of a name that is none, offer the nearest."""
        if args and args[0] not in COMMANDS and not args[0].startswith("-") and not ctx.resilient_parsing:
            raise UnknownCommandError(args[0], COMMANDS)
        return super().resolve_command(ctx, args)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Take `--debug` wherever it stands: people add it at the end of the line that failed."""
        end = args.index("--") if "--" in args else len(args)
        if "--debug" in args[:end]:
            ctx.obj = {**(ctx.obj or {}), "debug": True}
            args = [arg for place, arg in enumerate(args) if arg != "--debug" or place >= end]
        return super().parse_args(ctx, args)

    def make_context(self, *arguments: Any, **options: Any) -> Any:
        """Read the command line; typer says nothing of a Ctrl-C that comes then."""
        try:
            return super().make_context(*arguments, **options)
        except KeyboardInterrupt as error:
            print(_one_line(error), file=sys.stderr)
            raise typer.Exit(_status(error)) from error

    def invoke(self, ctx: Any) -> Any:
        """Run the command; an expected error becomes one line on standard error, and a status."""
        debug = bool((ctx.obj or {}).get("debug")) or os.environ.get("HUBSCOUT_DEBUG", "") not in {"", "0"}
        try:
            return super().invoke(ctx)
        except (HubscoutError, OSError, KeyboardInterrupt) as error:
            if isinstance(error, BrokenPipeError):
                raise
            if debug:
                raise
            print(self._in_options(ctx, _one_line(error)), file=sys.stderr)
            raise typer.Exit(_status(error)) from error
        except Exception as error:
            unknown: Any = error  # of click, which is part of newer typers and beside older ones
            if isinstance(option := getattr(error, "option_name", None), str) and hasattr(error, "possibilities"):
                owned = {name: [one.opts for one in self.get_command(ctx, name).params] for name in COMMANDS}
                owners = [name for name, options in owned.items() if any(option in one for one in options)]
                unknown.message += f". It is an option of {listing(owners)}." if owners else ""
            raise

    def _in_options(self, ctx: Any, line: str) -> str:
        """The line in the words of the command that ran."""
        command = self.get_command(ctx, ctx.invoked_subcommand) if ctx.invoked_subcommand else None
        return line if command is None else in_options(line, command.params)


def _one_line(error: BaseException) -> str:
    if isinstance(error, KeyboardInterrupt):
        return "Interrupted."
    text = strip_credentials(one_line(error))
    return f"Interrupted: {text}" if isinstance(error, InterruptedRunError) else f"Error: {text}"


def _status(error: BaseException) -> int:
    if isinstance(error, KeyboardInterrupt | InterruptedRunError):
        return EXIT_INTERRUPTED
    if isinstance(error, InputError | MissingDependencyError):
        return EXIT_BAD_INPUT
    return EXIT_ERROR


app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"hubscout {__version__}")
        raise typer.Exit


@app.callback(
    epilog="Exit status: 0 fine, 1 error, 2 bad input, 3 some models failed and the rest were ranked, 4 a tuned "
    "model is worse than guessing, 130 interrupted."
)
def hubscout(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="Show the traceback of an error. May stand anywhere on the line.")
    ] = False,
) -> None:
    """Which pre-trained model should I start from, and how do I make the most of it?

    Your own images, a folder per class:  [bold]hubscout rank flowers/[/bold]

    Every command says what to type next. Try it first, offline:  [bold]hubscout demo[/bold]
    """


def in_options(message: str, parameters: Sequence[Any]) -> str:
    """Say `--learning-rate -1` where a message says `learning_rate=-1.0`.

    Args:
        message: what an error says.
        parameters: of the command, as click has them.

    Returns:
        The message with every argument that the command has as an option, or takes by `--set`, in that form.

    Example:
        >>> import click
        >>> options = [click.Option(["--max-latency"]), click.Option(["--overwrite"], is_flag=True)]
        >>> in_options("max_latency must be a time. Overwrite it (overwrite=True, --overwrite).", options)
        '--max-latency must be a time. Overwrite it (--overwrite).'

    """
    options = options_by_argument(parameters)
    if "--set" in options.values():
        options |= {name: f"--set {name}" for name in _tuning_arguments() if name not in options}
    for name, option in options.items():
        message = _renamed(message, name, option)
    return re.sub(r"(--[\w-]+)(?:,| or) \1\b", r"\1", message)


def options_by_argument(parameters: Sequence[Any]) -> dict[str, str]:
    """The option, such as `--in-memory`, for each argument, such as `data_in_memory`."""
    named = ((one.name, next((name for name in one.opts if name.startswith("--")), "")) for one in parameters)
    return {name: option for name, option in named if option}


def _renamed(message: str, name: str, option: str) -> str:
    # Not inside a path, another name, or the options of an identifier such as `?pooling=mean`.
    start = rf"(?<![\w?&=./-]){name}"
    joint = "=" if option.startswith("--set ") else " "

    def valued(found: re.Match[str]) -> str:
        value = found["quoted"] if found["quoted"] is not None else found["plain"]
        if found["plain"] == "True":
            return option if joint == " " else f"{option}=true"
        return f"{option}{joint}{shlex.quote(value)}"

    message = re.sub(rf"{start}=(?:'(?P<quoted>[^']*)'|(?P<plain>-?[\w.+]*[\w+]))", valued, message)
    message = re.sub(rf"{start}=(?=,)", option, message)
    message = re.sub(rf"{start}=(?=[\s.])\s?", f"{option} ", message)
    # A sentence that begins with a small letter begins with the name of an argument.
    return re.sub(rf"(?:(?<=[.:;] )|^){name}(?= (?:must|was|is empty)\b)", option, message)


def _tuning_arguments() -> list[str]:
    from hubscout.tuning.arguments import TuningArguments

    return [field.name for field in dataclasses.fields(TuningArguments)]
