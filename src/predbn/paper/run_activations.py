"""Run the plans that measure activations inside the networks on every split, for D1 to D4.

Their folders have the same layout as any other run, and three more tables:

    results.parquet      the keys of every run, with the measurements inside the network as metrics (see `_metrics`)
    pooled.parquet       distances of all shifted images together, by layer and reference
    histograms.parquet   densities of channels over all shifted images, and over the training crops (first networks)
    spectra.parquet      eigenvalues of the covariances of embeddings and logits, likewise
    card.json            the run card

The training distribution is measured in three ways, because the paper does not say which it used:

    crops    training crops in batches, with batch statistics: what the network has seen in training
    whole    whole training images with the stored statistics, which the network has never seen together
    itself   whole training images with the strategy that is measured

Test images come in the same batches as in the evaluation. A network is finished when its rows are written; an
unfinished one starts again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import torch
from torch import Tensor

from predbn.common import each_on_one_core
from predbn.data import Images, open_images
from predbn.diagnostics import Distribution, Profile, distance_unit, paper_divergence, profile, profiles, wasserstein
from predbn.evaluation import (
    RELIABILITY_SCHEMA,
    RESULTS_SCHEMA,
    Engine,
    InProcess,
    Job,
    Plan,
    Split,
    open_run,
    read_table,
    resolve_splits,
    write_table,
)
from predbn.models import Classifier
from predbn.norm import named_layers

from .crops import border_of, crop_like_training

TRAINING = "training"
STORED_CHANNELS = 8
"""Channels of a layer whose histograms are stored: no figure shows more."""
BINS = 32
EIGENVALUES = {"embeddings": 12, "logits": 9}
"""How many of the largest eigenvalues are compared. In the paper no more than 12 of the embeddings are clearly above 0;
of ten logits, softmax ignores one direction."""

_KEYS = [pa.field("model", pa.string()), pa.field("series", pa.string()), pa.field("place", pa.string())]
HISTOGRAMS = pa.schema(
    [*_KEYS, pa.field("channel", pa.int64()), pa.field("x", pa.float64()), pa.field("density", pa.float64())]
)
SPECTRA = pa.schema([*_KEYS, pa.field("rank", pa.int64()), pa.field("value", pa.float64())])
POOLED = pa.schema([*_KEYS, pa.field("reference", pa.string()), pa.field("distance", pa.float64())])
_SCHEMAS = {"histograms": HISTOGRAMS, "spectra": SPECTRA, "pooled": POOLED, "results": RESULTS_SCHEMA}
"""The results are written last, because a network that is in them is finished."""

Tables = dict[str, list[dict[str, Any]]]
"""The rows of each table of `_SCHEMAS`."""


def run_activations(
    plan: Plan,
    out: str | Path,
    *,
    engine: Engine | None = None,
    models: dict[str, Classifier] | None = None,
    progress: Callable[[int, int, str], object] | None = None,
) -> None:
    """Profile the networks of a plan with train and prediction-time BN on all of its splits."""
    # Of the engine only the device is used: profiles are computed in this process.
    local = InProcess((engine or InProcess()).device)
    job = Job(plan, local.device, models=models or {})
    with open_run(job, out, local) as run:
        run.write_card()
        tables = {name: _read(Path(out) / f"{name}.parquet", schema) for name, schema in _SCHEMAS.items()}
        finished = {row["model"] for row in tables["results"]}
        tables = {name: [row for row in rows if row["model"] in finished] for name, rows in tables.items()}
        names = [name for members in job.members.values() for name in members if name not in finished]
        splits = resolve_splits(plan.shifts, plan.severities, job.source.names)
        total, done = len(names) * (len(splits) + 2), 0

        def finish_step(what: str) -> None:
            nonlocal done
            done += 1
            if progress is not None:
                progress(done, total, what)

        for name in names:
            (rows,) = each_on_one_core(lambda name: _profile_network(job, plan, name, splits, finish_step), [name])
            write_table(Path(out) / "reliability.parquet", RELIABILITY_SCHEMA.empty_table(), compression="zstd")
            for table, schema in _SCHEMAS.items():
                tables[table] += rows[table]
                write_table(
                    Path(out) / f"{table}.parquet", pa.Table.from_pylist(tables[table], schema), compression="zstd"
                )


def _profile_network(
    job: Job, plan: Plan, name: str, splits: Sequence[Split], finish_step: Callable[[str], None]
) -> Tables:
    model = job.worker.cache.model(name)
    strategies = [text for text in plan.strategies if text == "train" or next(named_layers(model), None) is not None]
    has_batch_norm = len(strategies) > 1
    size = plan.batch_sizes[0]
    assert isinstance(size, int)
    whole = _training_images(plan)
    crops = crop_like_training(whole, *border_of(model.info.card))
    seen, unseen = (partial(images.batches, size, device=job.device) for images in (crops, whole))
    outputs = "all" if has_batch_norm else None
    # The first pass over the crops finds the ranges of the histograms, the second fills them. With the statistics of
    # each batch, eval mode computes what training mode does.
    in_training = strategies[-1]
    ranges = profile(model, seen(), in_training, outputs=outputs)
    finish_step(f"training crops, {name}")
    reference = profile(model, seen(), in_training, like=ranges, bins=BINS, outputs=outputs)
    on_whole = profiles(model, unseen(), strategies, like=reference, outputs=outputs)
    finish_step(f"training images, {name}")
    tables: Tables = {table: [] for table in _SCHEMAS}
    shifted: dict[str, Profile] = {}  # all shifted splits together, by strategy
    for split in splits:
        measured = profiles(model, _batches(job, name, split, size), strategies, like=reference, outputs=outputs)
        for strategy, split_profile in measured.items():
            key = {"model": name, "method": "vanilla", "strategy": strategy, **split._asdict()}
            key |= {"batch_size": size, "order": plan.orders[0], "seed": plan.seeds[0]}
            metrics = _metrics(reference, split_profile, "_crops")
            metrics |= _metrics(on_whole["train"], split_profile) | _metrics(
                on_whole[strategy], split_profile, "_itself"
            )
            tables["results"] += [{**key, "metric": metric, "value": value} for metric, value in metrics.items()]
            if split.severity:
                before = shifted.get(strategy)
                shifted[strategy] = split_profile if before is None else before.merge(split_profile)
        finish_step(f"{split}, {name}")
    for series, one in shifted.items():
        known = {"crops": reference, "whole": on_whole["train"], "itself": on_whole[series]}
        tables["pooled"] += [
            {"model": name, "series": series, "reference": which, **row}
            for which, profile_of_it in known.items()
            for row in _pooled(profile_of_it, one)
        ]
    for series, one in {TRAINING: reference, **shifted}.items():
        key = {"model": name, "series": series}
        if name.endswith("/0"):  # the figures show the first network
            tables["histograms"] += [{**key, **row} for row in _histograms(one)]
        tables["spectra"] += [{**key, **row} for row in _spectra(one)]
    return tables


def _pooled(reference: Profile, one: Profile) -> Iterator[dict[str, Any]]:
    """By layer: W₁ to the reference in its standard deviations, mean over the channels."""
    for layer, new in one.layers.items():
        old = reference.layers[layer]
        yield {"place": layer, "distance": float((wasserstein(old, new) / distance_unit(old)).mean())}


def _batches(job: Job, name: str, split: Split, size: int) -> Iterator[Tensor]:
    """The images of a split in batches.

    They are corrupted in large blocks, which is safe because the corruption of an image depends only on its index.
    """
    blocks = job.worker.stream(split, job.plan.orders[0], job.plan.seeds[0], job.worker.block(name, size))
    return (batch for block in blocks for batch in block.inputs.split(size))


def _metrics(reference: Profile, one: Profile, suffix: str = "") -> dict[str, float]:
    """What is stored of one split with one strategy, compared with a reference that the suffix names.

    divergence    T⁻¹ Σ ln q̂/p̂ of the embeddings, the paper's approximation of KL(p ‖ q) with independent dimensions
    distance      W₁ to the training distribution, in its standard deviations, mean over channels, then layers
    outside       share of the values outside the range of the training crops, mean over channels, then layers
    spectrum_gap  mean |ln λ − ln λ'| over the largest eigenvalues of embeddings and training embeddings
    logit_gap     the same for the logits
    """
    before, after = ({place: known.distributions[place] for place in EIGENVALUES} for known in (reference, one))
    values = {
        "divergence": paper_divergence(before["embeddings"], after["embeddings"]),
        "spectrum_gap": _spectrum_gap(before["embeddings"], after["embeddings"], EIGENVALUES["embeddings"]),
        "logit_gap": _spectrum_gap(before["logits"], after["logits"], EIGENVALUES["logits"]),
    }
    pairs = [(reference.layers[name], layer) for name, layer in one.layers.items()]
    if pairs:
        distances = [wasserstein(old, new) / distance_unit(old) for old, new in pairs]
        values["distance"] = float(torch.stack([distance.mean() for distance in distances]).mean())
    measured = {f"{metric}{suffix}": value for metric, value in values.items()}
    if suffix == "_crops" and pairs:
        measured["outside_crops"] = float(torch.stack([new.outside.mean() for _, new in pairs]).mean())
    return measured


def _spectrum_gap(before: Distribution, after: Distribution, top: int) -> float:
    old, new = (distribution.spectrum(top=top) for distribution in (before, after))
    smallest = 1e-6 * float(old[0])  # eigenvalues near 0 would dominate a difference of logarithms
    return float((new.clamp(min=smallest).log() - old.clamp(min=smallest).log()).abs().mean())


def _histograms(one: Profile) -> Iterator[dict[str, Any]]:
    """Densities bin by bin, without the empty bins."""
    for place, distribution in one.distributions.items():
        edges, density = distribution.histogram[0].edges, distribution.density
        channels = distribution.columns if place == "logits" else min(STORED_CHANNELS, distribution.columns)
        for channel in range(channels):
            for cell in density[channel].nonzero().flatten().tolist():
                middle = 0.5 * float(edges[channel, cell] + edges[channel, cell + 1])
                yield {"place": place, "channel": channel, "x": middle, "density": float(density[channel, cell])}


def _spectra(one: Profile) -> Iterator[dict[str, Any]]:
    for place in EIGENVALUES:
        for rank, value in enumerate(one.distributions[place].spectrum().tolist(), 1):
            yield {"place": place, "rank": rank, "value": value}


def _training_images(plan: Plan) -> Images:
    """The images that the networks were trained on; for the embedded sample, which has none, validation images.

    If the plan is on a part of the test images, ten times as many training images are used.
    """
    images = open_images(plan.data, "validation" if plan.data == "sample" else "train")
    return images if plan.images is None else images.take(min(len(images), 10 * plan.images))


def _read(path: Path, schema: pa.Schema) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = read_table(path, schema).to_pylist() if path.exists() else []
    return rows
