"""Which class of the data is which output of a model, by name.

A class map is a file of class names, one per line, in the order of the model's outputs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor

from predbn.common import DataError, did_you_mean

from .reading import readable

ClassMap = Mapping[str, int]
"""The output of each class, by its name."""


def read_class_map(path: str | Path) -> dict[str, int]:
    """The class map in a file."""
    path = Path(path).expanduser()
    if not path.is_file():
        raise DataError(f"there is no class map {path}: name a file with one class per line.")
    with readable(path):
        text = path.read_text(encoding="utf-8", errors="replace")
    return number_classes(str(path), [line.strip() for line in text.splitlines() if line.strip()])


def number_classes(source: str, names: Sequence[str]) -> dict[str, int]:
    """The class map of names in the order of the outputs; `source` is where they are from, for messages."""
    repeated = next((name for position, name in enumerate(names) if name in names[:position]), None)
    if repeated is not None or not names:
        wrong = f"names {repeated!r} twice" if repeated is not None else "names no class"
        raise DataError(f"{source} {wrong}: it must name each class once.")
    return {name: number for number, name in enumerate(names)}


def labels_by_name(
    source: str, data_classes: Sequence[str], labels: Tensor, class_map: ClassMap | None, outputs: int
) -> tuple[Tensor, tuple[str, ...]]:
    """Labels, which are positions in `data_classes`, as numbers of outputs; and the name of each output.

    Without a class map the data must have one class for each output, in the same order.
    """
    if class_map is None:
        if len(data_classes) != outputs:
            raise DataError(
                f"{source} has {len(data_classes)} classes, but the model has {outputs} outputs: list the "
                "classes in a file, in the order of the outputs, and give it with --class-map."
            )
        return labels, tuple(data_classes)
    too_large = next((name for name, number in class_map.items() if number >= outputs), None)
    if too_large is not None:
        raise DataError(
            f"the class map gives {too_large!r} the number {class_map[too_large]}, but the outputs of the model are "
            f"numbered from 0 to {outputs - 1}."
        )
    unknown = next((name for name in data_classes if name not in class_map), None)
    if unknown is not None:
        raise DataError(
            f"{source} has a class {unknown!r}, which the model does not know{did_you_mean(unknown, class_map)}: "
            "rename the folder, give a --class-map, or add --unlabelled if the folders are not classes."
        )
    names = {number: name for name, number in class_map.items()}
    outputs_of = torch.tensor([class_map[name] for name in data_classes], dtype=torch.int64)
    return outputs_of[labels], tuple(names.get(number, str(number)) for number in range(outputs))
