"""The reference of the command line, from the commands themselves."""

from __future__ import annotations

from typing import Any


def command_pages() -> str:
    """One page with every command, its arguments, options and examples."""
    import typer.main

    from hubscout.cli.app import app

    group: Any = typer.main.get_command(app)
    parts = [
        "# Command line\n",
        "Results go to standard output, progress and messages to standard error. Every command that prints a table "
        "also takes `--json`.\n",
    ]
    context = group.make_context("hubscout", ["doctor"], resilient_parsing=True)
    for name in group.list_commands(context):
        parts += _command(f"hubscout {name}", group.get_command(context, name), level=2)
    parts.append((group.epilog or "").strip() + "\n")
    return "\n".join(parts)


def _command(path: str, command: Any, level: int) -> list[str]:
    parts = [f"{'#' * level} {path}\n", _paragraphs(command.help or "")]
    if hasattr(command, "commands"):
        for name, inner in command.commands.items():
            parts += _command(f"{path} {name}", inner, level + 1)
        return parts
    arguments = [p for p in command.params if p.param_type_name == "argument"]
    options = [p for p in command.params if p.param_type_name == "option" and not p.hidden]
    usage = " ".join([path, *(_argument(argument) for argument in arguments), "[OPTIONS]"])
    parts.append(f"    {usage}\n")
    if arguments or options:
        parts.append("| | | default |\n|---|---|---|")
        parts += [f"| `{_argument(one)}` | {_cell(getattr(one, 'help', '') or '')} | |" for one in arguments]
        parts += [f"| {_names(one)} | {_cell(one.help or '')} | {_default(one)} |" for one in options]
        parts.append("")
    if command.epilog:
        parts.append(_epilog(command.epilog))
    return parts


def _argument(argument: Any) -> str:
    name = (argument.metavar or argument.name).upper().strip("{}[].")
    return name if argument.required else f"[{name}]"


def _names(option: Any) -> str:
    return ", ".join(f"`{name}`" for name in (*option.opts, *option.secondary_opts))


def _default(option: Any) -> str:
    default = option.default
    if default is None or default is False or callable(default) or default in ([], ()):
        return ""
    shown = ", ".join(map(str, default)) if isinstance(default, list | tuple) else str(default)
    return f"`{_cell(shown)}`"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _paragraphs(text: str) -> str:
    """Paragraphs on one line each; the marks of rich, which a terminal shows as bold, become code."""
    plain = text.replace("[bold]", "`").replace("[/bold]", "`")
    return "\n\n".join(" ".join(part.split()) for part in plain.split("\n\n")) + "\n"


def _epilog(text: str) -> str:
    """Examples as one block of code, the rest as text."""
    lines: list[str] = []
    said: list[str] = []
    for part in text.split("\n\n"):
        if part.startswith(("hubscout ", "torchrun ")):
            lines.append(part.strip())
        elif part.strip() != "Examples:":
            said.append(" ".join(part.split()))
    code = "```bash\n" + "\n".join(lines) + "\n```\n" if lines else ""
    return code + ("\n" + "\n\n".join(said) + "\n" if said else "")
