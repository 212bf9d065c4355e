"""Write the statistics of a data set into the buffers of a model, for good, and take them back."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any, TypeVar

from torch import nn

from predbn.common import AdaptationError, Progress

from .adapt import adapted
from .forward import Forward
from .layer import adapted_layers, attached, source_statistics
from .layers import Layers, check_model, is_frozen, select_layers, shortened
from .overwritten import overwrite
from .population import collect_population
from .population_file import PopulationFile
from .processes import is_distributed, is_first_process
from .strategies import Population
from .strategies.base import load_statistics

M = TypeVar("M", bound=nn.Module)


def recompute(
    model: M,
    loader: Iterable[Any],
    *,
    exact: bool = True,
    layers: Layers = "all",
    forward: Forward | None = None,
    sync: bool | None = None,
    process_group: Any = None,
    progress: Progress | None = None,
    checkpoint: str | Path | None = None,
) -> M:
    """Replace the stored statistics of the batch norm layers by those of the data, exactly; `restore` undoes it.

    For weights whose statistics are not theirs: averaged weights (SWA, EMA), weights that were edited or merged, or
    trained in batches too small. The model is predicted in `.eval()` mode (dropout is off) and is changed in place when
    all is measured; after an error it is as it was. Afterwards it needs this package no longer.

    The result is what the layers would use if the whole data were one batch, however it is batched:

        μ = Σ x / n,    σ² = Σ (x − μ)² / n,    over all n values of a channel in the data.

    loader         unlabelled data: batches as `forward.py` describes them, or (batch, label) pairs
    exact          measure layer by layer, each on inputs that result from the new statistics of those before it, which
                   takes about half as many passes over the data as there are layers. False takes a single pass, in
                   which a batch goes through the earlier layers with its own statistics; the result then depends on
                   the batches: the variances of later layers are too large or too small by O(1/batch size)
    layers         as in `adapt`; "all" leaves out layers that are frozen by their class, to which the weights were
                   fitted as they are: give "*" for those too
    forward        called as forward(model, batch) to predict a batch, if the default does not fit
    sync           pool the data of all processes of `process_group`, weighted by the number of values; by default if
                   there are several. Every process must then call this, with any number of batches, even none
    progress       called with (batches predicted, batches in total; 0 if that is not known)
    checkpoint     a file for the statistics of the layers that are done: if the program is killed, the same call goes
                   on from there. It is removed in the end. Only with `exact`
    """
    check_model(model)
    if checkpoint is not None and not exact:
        raise AdaptationError("a single pass cannot be resumed: drop checkpoint, or exact=False")
    _check_nothing_depends_on_old_statistics(model)
    selected = _stored_layers(model, layers)
    sync = is_distributed() if sync is None else sync
    file = None
    if checkpoint is not None:
        file = PopulationFile(checkpoint, model, selected, is_ours=not sync or is_first_process(process_group))
    chosen = set(selected.values())
    with adapted(
        model, Population(exact), layers=lambda _, layer: layer in chosen, sync=sync, process_group=process_group
    ):
        shared = next(own.shared for layer in chosen if (own := attached(layer)) is not None)
        batches = collect_population(
            model, shared, loader, exact=exact, forward=forward, progress=progress, checkpoint=file
        )
        collected = {name: load_statistics(shared.default_stream.states.get(name, {})) for name in selected}
    measured = {selected[name]: statistics for name, statistics in collected.items() if statistics is not None}
    overwrite(model, measured, batches)
    if file is not None:
        file.remove()
    uncalled = [name for name, statistics in collected.items() if statistics is None]
    if uncalled:
        warnings.warn(
            f"{shortened(uncalled)} were not called in a prediction and keep their statistics",
            UserWarning,
            stacklevel=2,
        )
    return model


def _check_nothing_depends_on_old_statistics(model: nn.Module) -> None:
    for name, _, adaptation in adapted_layers(model):
        if adaptation.calibration is not None:
            raise AdaptationError(
                f"layer '{name}' was calibrated with the statistics that are to be replaced; call "
                "predbn.restore(model, keep_calibration=False) first, then recompute, adapt and calibrate"
            )
        shared = adaptation.shared
        if shared.strategy.keeps_state and any(stream.copied_states() for stream in shared.streams.values()):
            raise AdaptationError(
                f"strategy '{shared.strategy}' remembers batches that were predicted with the statistics that are to "
                "be replaced; call predbn.reset(model) first, which forgets them, or predbn.restore(model)"
            )


def _stored_layers(model: nn.Module, layers: Layers) -> dict[str, nn.Module]:
    """The selected layers that store statistics."""
    selected = select_layers(model, layers)
    stored = {name: layer for name, layer in selected if source_statistics(layer) is not None}
    if isinstance(layers, str) and layers == "all":
        stored = {name: layer for name, layer in stored.items() if not is_frozen(layer)}
    if not stored:
        name, layer = selected[0]
        frozen = "frozen ones, which layers='*' includes" if is_frozen(layer) else "some that track running statistics"
        raise AdaptationError(
            f"none of the {len(selected)} selected batch norm layers has statistics to replace (the first is '{name}', "
            f"a {type(layer).__name__}); select {frozen}"
        )
    without = [name for name, layer in selected if source_statistics(layer) is None]
    if without:
        warnings.warn(
            f"{shortened(without)} store no statistics and normalise every batch with its own, so that those of "
            "later layers depend on the batches of the loader",
            UserWarning,
            stacklevel=3,
        )
    return stored
