"""The reference of the command line: one page for each command, from the help that it prints.

python -m predbn.commands.reference docs/commands
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from .app import app
from .help import Help, help_of


def pages() -> dict[str, str]:
    """The Markdown of every page by its name: the index, and one page for each command or group of commands."""
    commands = typer.main.get_command(app)
    context = typer.Context(commands, info_name="predbn")
    index = [
        "# Command line",
        "",
        "Written by `python -m predbn.commands.reference docs/commands` from the help of each command.",
        "",
    ]
    written = {}
    for name, command in commands.commands.items():  # type: ignore[attr-defined]
        sections = [_section(found, level) for found, level in _help_of_all(command, context, 1)]
        written[name] = "\n".join(sections)
        index.append(f"- [`predbn {name}`]({name}.md): {help_of(command, context).summary}")
    toctree = ["", "```{toctree}", ":hidden:", *written, "```", ""]
    return {"index": "\n".join([*index, *toctree]), **written}


def _help_of_all(command: Any, parent: Any, level: int) -> Iterator[tuple[Help, int]]:
    """The help of a command and of those below it."""
    context = typer.Context(command, info_name=command.name, parent=parent)
    yield help_of(command, context), level
    for subcommand in getattr(command, "commands", {}).values():
        yield from _help_of_all(subcommand, context, level + 1)


def _section(shown: Help, level: int) -> str:
    name = shown.usage.partition(" [")[0]
    lines = [f"{'#' * level} {name}", "", shown.summary, ""]
    if shown.examples:
        lines += ["```", shown.examples, "```", ""]
    for paragraph in shown.details:
        lines += [_escape(paragraph), ""]
    for group, entries in shown.groups.items():
        if group != "Commands":
            lines += [f"| {group} | |", "|---|---|"]
            lines += [f"| {_code(name)} | {_escape(text)} |" for name, text in entries]
            lines.append("")
    return "\n".join(lines)


def _code(name: str) -> str:
    return " / ".join(f"`{part}`" for part in name.split("/")).replace("|", "\\|")


def _escape(text: str) -> str:
    """Text as Markdown shows it, with options as code: two dashes would become one."""
    escaped = re.sub(r"([|*_])", r"\\\1", text).replace("<", "&lt;")
    return re.sub(r"(?<![\w-])--(?=[ \w])[\w-]*", r"`\g<0>`", escaped)


def write(folder: Path) -> None:
    """Write all pages, and remove those of commands that are gone."""
    folder.mkdir(parents=True, exist_ok=True)
    written = pages()
    for path in folder.glob("*.md"):
        if path.stem not in written:
            path.unlink()
    for name, text in written.items():
        (folder / f"{name}.md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write(Path(sys.argv[1]))
