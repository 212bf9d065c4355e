"""Which engine a command computes with, from its options."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from predbn.evaluation import Engine

__all__ = ["Address", "CpusPerWorker", "EngineName", "EngineOption", "GpusPerWorker", "engine_of", "engine_on"]


class EngineName(str, Enum):
    """The engines by name."""

    in_process = "in-process"
    ray = "ray"


EngineOption = Annotated[
    EngineName,
    typer.Option(
        "--engine",
        help="in-process, or ray for more than one machine (pip install predbn\\[ray]). Every node needs predbn in "
        "the same version, installed or in Ray's runtime_env, as with: ray job submit --working-dir . -- predbn "
        "evaluate --engine ray …",
    ),
]
Address = Annotated[
    str | None,
    typer.Option(
        help="The Ray cluster: auto (the one this machine is a node of; unless given), host:port, or local to start "
        "one on this machine alone."
    ),
]
CpusPerWorker = Annotated[
    int | None, typer.Option(help="Cores for a Ray worker; a whole node unless given, or its part by GPUs.")
]
GpusPerWorker = Annotated[
    float | None, typer.Option(help="GPUs for a Ray worker with --device cuda; 1 unless given, 0.5 to share one.")
]


@contextmanager
def engine_of(
    name: EngineName, device: str, address: str | None, cpus_per_worker: int | None, gpus_per_worker: float | None
) -> Iterator[Engine]:
    """The engine that the options ask for, until it is no longer needed."""
    if name is EngineName.in_process:
        given = {"address": address, "cpus-per-worker": cpus_per_worker, "gpus-per-worker": gpus_per_worker}
        for option, value in given.items():
            if value is not None:
                raise typer.BadParameter("it is for --engine ray: add that, or leave it out.", param_hint=f"--{option}")
        yield engine_on(device)
        return
    from predbn.evaluation import RayEngine

    with RayEngine(
        "auto" if address is None else address,
        device=device,
        cpus_per_worker=cpus_per_worker,
        gpus_per_worker=1 if gpus_per_worker is None else gpus_per_worker,
    ) as engine:
        yield engine


def engine_on(device: str) -> Engine:
    """The engine in this process for a device; one that is not there is a wrong argument."""
    import torch

    from predbn.evaluation import EvaluationError, InProcess

    name = ("cuda" if torch.cuda.is_available() else "cpu") if device == "auto" else device
    try:
        return InProcess(name)
    except EvaluationError as error:
        raise typer.BadParameter(str(error), param_hint="--device") from None
