"""`predbn zoo`: the trained networks that come with the package."""

from __future__ import annotations

import json
from statistics import mean
from typing import Annotated, Any

import typer

from .options import Json, refuse_options
from .output import make_console, new_table

_HEADINGS = ("zoo:…", "seeds", "accuracy", "range", "Brier", "ECE")


def zoo_command(
    context: typer.Context,
    network: Annotated[str | None, typer.Argument(help="One network, such as resnet20-cifar10/batch/3.")] = None,
    as_json: Json = False,
    as_markdown: Annotated[bool, typer.Option("--markdown", help="Print the table for a document.")] = False,
) -> None:
    """List the networks with their scores on the 10,000 clean test images, or print the card of one network.

    Examples:

      predbn zoo
      predbn zoo resnet20-cifar10/batch/3
    """
    from predbn.models import zoo

    if network is not None or as_json:
        refuse_options(context, ["as_markdown"], "it prints the table of all networks: leave out the rest.")
    if network is not None:
        typer.echo(json.dumps(zoo.card(network.removeprefix("zoo:")), indent=2, ensure_ascii=False))
    elif as_json:
        typer.echo(json.dumps({name: zoo.card(name) for name in zoo.names()}, ensure_ascii=False))
    elif as_markdown:
        typer.echo(markdown())
    else:
        table = new_table()
        for heading in _HEADINGS:
            table.add_column(heading, justify="left" if heading == _HEADINGS[0] else "right", no_wrap=True)
        for row in _rows():
            table.add_row(*row)
        make_console().print(table)


def markdown() -> str:
    """The table of docs/training.md."""
    rows = [_HEADINGS, ("---", *["--:"] * (len(_HEADINGS) - 1)), *_rows()]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _rows() -> list[tuple[str, ...]]:
    """One row per kind of network, with the mean over its seeds."""
    from predbn.models import zoo

    kinds: dict[str, list[dict[str, Any]]] = {}
    for name in zoo.names():
        kinds.setdefault(name.rpartition("/")[0], []).append(zoo.card(name)["test"])
    return [(f"{kind}/*", *_summary(scores)) for kind, scores in kinds.items()]


def _summary(scores: list[dict[str, Any]]) -> tuple[str, ...]:
    accuracies = [100 * score["accuracy"] for score in scores]
    return (
        str(len(scores)),
        f"{mean(accuracies):.2f}",
        f"{min(accuracies):.2f} – {max(accuracies):.2f}",
        f"{mean(score['brier'] for score in scores):.3f}",
        f"{mean(score['ece'] for score in scores):.3f}",
    )
