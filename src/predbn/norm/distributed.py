"""Statistics of a batch that is spread over several processes."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist

from .statistics import Moments


def pool_over_processes(local: Moments, process_group: Any = None) -> Moments:
    """The moments of the global batch, from each process's own, however unevenly it is spread.

    With w_r = values_r / Σ values:  mean = Σ w_r·mean_r,  var = Σ w_r·(var_r + (mean_r − mean)²).
    Every process of the group must call it, also one whose share is empty. Gradients do not cross
    processes.
    """
    channels = local.mean.numel()
    counts = torch.tensor([local.values, local.size], dtype=torch.float64, device=local.mean.device)
    own = torch.cat([counts, local.mean.detach().double(), local.var.detach().double()])
    gathered = [torch.empty_like(own) for _ in range(dist.get_world_size(process_group))]
    dist.all_gather(gathered, own, group=process_group)
    everyone = torch.stack(gathered)
    values, size = everyone[:, 0].sum(), everyone[:, 1].sum()
    weight = everyone[:, :1] / values.clamp(min=1)
    means, variances = everyone[:, 2:].split(channels, dim=1)
    mean = (weight * means).sum(0)
    var = (weight * (variances + (means - mean) ** 2)).sum(0)
    dtype = local.mean.dtype
    return Moments(mean.to(dtype), var.to(dtype), values, size)
