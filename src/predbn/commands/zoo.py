"""`predbn zoo`: the trained networks that come with the package."""

from __future__ import annotations

import json
from statistics import mean
from typing import Annotated, Any

import typer

from .console import make_console, new_table
from .options import Json

HEADINGS = ("zoo:…", "seeds", "accuracy", "range", "Brier", "ECE")


def zoo_command(
    network: Annotated[str | None, typer.Argument(help="One network, such as resnet20-cifar10/batch/3.")] = None,
    as_json: Json = False,
) -> None:
    """List the networks with their scores on the 10,000 clean test images, or print the card of one network.

    Examples:

      predbn zoo
      predbn zoo resnet20-cifar10/batch/3
    """
    from predbn.models import zoo

    if network is not None:
        typer.echo(json.dumps(zoo.card(network.removeprefix("zoo:")), indent=2, ensure_ascii=False))
    elif as_json:
        typer.echo(json.dumps({name: zoo.card(name) for name in zoo.names()}, ensure_ascii=False))
    else:
        table = new_table(*HEADINGS)
        for row in rows_by_kind():
            table.add_row(*row)
        make_console().print(table)


def rows_by_kind() -> list[tuple[str, ...]]:
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
