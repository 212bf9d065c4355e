"""What an attack of `predbn.shifts` achieves on single batches, and what they would be predicted as without it."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from predbn.shifts import Attack, target_class


@torch.no_grad()
def outcomes(
    attack: Attack, predict: Callable[[Tensor], Tensor], images: Tensor, labels: Tensor
) -> list[dict[str, float]]:
    """The outcome on each batch.

    success     1 if the chosen row is predicted as the class that the attacker wants (targeted only)
    error       of the benign rows under attack
    unattacked  their error if the other rows are the batch's own
    """
    in_batches = labels.unflatten(0, (-1, attack.rows))
    before, after = (predict(x).unflatten(0, (-1, attack.rows)) for x in (images, attack.run(predict, images, labels)))
    columns = {
        name: (logits.argmax(2) != in_batches)[:, attack.benign].float().mean(1)
        for name, logits in (("error", after), ("unattacked", before))
    }
    if attack.kind == "targeted":
        wanted = target_class(in_batches[:, 0], after.shape[2])
        columns["success"] = (after[:, 0].argmax(1) == wanted).float()
    rows = zip(*(values.tolist() for values in columns.values()), strict=True)
    return [dict(zip(columns, row, strict=True)) for row in rows]
