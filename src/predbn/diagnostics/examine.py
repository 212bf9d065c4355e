"""Are the stored statistics of a model right for its weights and its data, and what should be done?"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import nn

from predbn.common import DiagnosticError, Progress
from predbn.norm import Forward, PreparedAdaptation, device_of, named_layers, unwrapped

from .batches import Batches, DataSet
from .data_statistics import DataStatistics, distance_between, measure
from .examination import Examination, LayerFit
from .finding import Finding, listed
from .fit import Fit
from .fit_findings import fit_findings
from .recorder import name_prefix
from .shift_findings import classes_finding, shift_finding
from .stored_statistics import check_stored_statistics, has_statistics

_SPOILT = {"never updated", "not finite", "exploded", "no variance"}
"""Findings that already say that a layer's statistics are wrong."""


def examine(
    model: nn.Module,
    loader: DataSet | Iterable[Any] | None = None,
    reference: DataSet | Iterable[Any] | DataStatistics | None = None,
    *,
    batch_size: int = 100,
    device: torch.device | str | None = None,
    forward: Forward | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> Examination:
    """Examine the batch norm layers of a model, without labels, and say what to do. The model stays as it is.

    Without data, only what the layers have stored is looked at.

    loader       data to predict, which may have shifted
    reference    clean data, ideally training data as the model saw it: if the stored statistics do not fit it, they are
                 stale, and the data is not to blame. With both, a shift is told from stale statistics; with `loader`
                 alone, only that one of the two is there. `measure(model, reference)` may be given instead, to use it
                 for several examinations of the same model
    batch_size   data is regrouped into batches of this size, however the loader cuts it; lists of images, and batches
                 for a `forward` of yours, are taken as they come
    device       move the model to this device; by default it stays where it is
    forward      called as forward(model, batch) to predict a batch, if the default does not fit: tensors, tuples that
                 begin with what `forward` of the model requires, and dictionaries and dataclasses by its names
    seed         for the order of data sets of `predbn.data`; loaders and lists of batches are taken as they come
    progress     called with (batches done, batches in total; 0 if the number is not known)

    A hundred examples of each are enough for all but the smallest shifts.
    """
    if not isinstance(model, nn.Module):
        raise DiagnosticError(f"The model is a {type(model).__name__}, but only a torch.nn.Module can be examined.")
    if isinstance(batch_size, bool) or not isinstance(batch_size, int) or batch_size < 2:
        raise DiagnosticError(f"batch_size is {batch_size!r}, but a batch has a whole number of examples, 2 or more.")
    model = unwrapped(model)
    layers: dict[str, Any] = {name.removeprefix(name_prefix(model)): layer for name, layer in named_layers(model)}
    if not layers:
        return Examination(0)
    PreparedAdaptation(model, "train")  # refuses what cannot be examined: lazy, scripted and quantised layers
    if device is not None:
        model.to(device)
    findings = check_stored_statistics(model, layers)
    if (reference is None and loader is None) or any(finding.code == "weights not finite" for finding in findings):
        return Examination(len(layers), findings, _rows(layers, {}, are_right=True))
    given = {"reference": reference, "data": loader}
    given = {name: data for name, data in given.items() if data is not None}
    measured = _measure_all(model, given, batch_size, forward, seed, progress)
    fits = {name: Fit.of(name, each, layers) for name, each in measured.items()}
    known = {name for finding in findings if finding.code in _SPOILT for name in finding.layers}
    findings += fit_findings(model, layers, fits.get("reference") or fits["data"], known)
    findings += _not_called(layers, next(iter(fits.values())).measured)
    are_right = not any(finding.is_problem for finding in findings)
    rows = _rows(layers, fits, are_right=are_right)
    if len(fits) == 2:
        shift = shift_finding(rows, fits["reference"], fits["data"], are_right=are_right)
        classes = classes_finding(fits["reference"], fits["data"])
        findings += [finding for finding in (shift, classes) if finding is not None]
    return Examination(
        len(layers),
        sorted(findings, key=lambda finding: not finding.is_problem),
        rows,
        _channels(layers, fits),
        {name: fit.measured.predictions.to_dict() for name, fit in fits.items()},
        {name: fit.measured.examples for name, fit in fits.items()},
    )


def _measure_all(
    model: nn.Module,
    given: dict[str, Any],
    batch_size: int,
    forward: Forward | None,
    seed: int,
    progress: Progress | None,
) -> dict[str, DataStatistics]:
    """The statistics of each set of data that is not measured yet."""
    measured: dict[str, DataStatistics] = {}
    batches: dict[str, Batches] = {}
    for name, data in given.items():
        if not isinstance(data, DataStatistics):
            batches[name] = Batches(data, batch_size, device_of(model), seed)
        elif data.model is not model:
            raise DiagnosticError("The reference was measured with another model: measure it again with this one.")
        else:
            measured[name] = data
    counts = [each.count() for each in batches.values()]
    total, done = sum(counts) if all(counts) else 0, 0

    def after_batch() -> None:
        nonlocal done
        done += 1
        if progress is not None:
            progress(done, total)

    for name, each in batches.items():
        measured[name] = measure(model, each, name, batch_size=batch_size, forward=forward, after_batch=after_batch)
    return {name: measured[name] for name in given}


def _rows(layers: dict[str, Any], fits: dict[str, Fit], *, are_right: bool) -> list[LayerFit]:
    """The layers in the order of the calls; without data, as the model registers them.

    `are_right` says whether the stored statistics are.
    """
    called = list(dict.fromkeys(name for fit in fits.values() for name in fit.measured.layers))
    names = called + [name for name in layers if name not in called]
    return [_row(name, depth, layers[name], fits, are_right) for depth, name in enumerate(names, start=1)]


def _row(name: str, depth: int, layer: Any, fits: dict[str, Fit], are_right: bool) -> LayerFit:
    values: dict[str, float] = {}
    for data, fit in fits.items():
        if name in fit.distances:
            values[data], values[f"{data}_chance"] = fit.distances[name]
    measured = [fit.measured for fit in fits.values() if name in fit.measured.layers]
    if len(measured) == 2:
        found = distance_between(measured[0], measured[1], name, float(layer.eps), are_right=are_right)
        values["shift"], values["shift_chance"] = found
    channels = layer.running_mean.numel() if has_statistics(layer) else layer.num_features
    return LayerFit(name, depth, channels, **values)


def _channels(layers: dict[str, Any], fits: dict[str, Fit]) -> dict[str, dict[str, tuple[list[float], list[float]]]]:
    return {
        name: {data: fit.channels(name, layer) for data, fit in fits.items() if name in fit.distances}
        for name, layer in layers.items()
    }


def _not_called(layers: dict[str, Any], measured: DataStatistics) -> list[Finding]:
    names = tuple(name for name in layers if name not in measured.layers)
    if not names:
        return []
    return [
        Finding(
            "not called",
            "note",
            names,
            f"The data did not reach {listed(names, len(layers))}, so nothing is known about the fit there.",
            "Nothing if these layers are for training only, as auxiliary heads are.",
        )
    ]
