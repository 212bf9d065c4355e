"""What happens inside the networks on every split, for D1 to D4, as a run like any other.

    results.parquet      the keys of every run, and what was measured inside as metrics (see `_measured`)
    histograms.parquet   densities of channels over all shifted images, beside those of the training images
    spectra.parquet      eigenvalues of the covariances of embeddings and logits, likewise
    card.json            the run card

Test images come in the very batches that the evaluation predicts. The reference is the training images under train
BN. A network is done when its rows are there; one that was not finished is begun again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import torch
from torch import Tensor

from predbn.common import each_on_one_core, finish, hardware_of, part_of
from predbn.data import Images
from predbn.diagnostics import Gaussian, Profile, paper_divergence, profile, profiles, spectrum, unit, wasserstein
from predbn.evaluation import RELIABILITY_SCHEMA as RELIABILITY
from predbn.evaluation import RESULTS_SCHEMA as RESULTS
from predbn.evaluation import Engine, InProcess, Job, Plan, Split, Store, make_card, open_images, write_plan
from predbn.evaluation import card_json as to_json
from predbn.evaluation import check_same_context as check_same
from predbn.evaluation import join_contexts as joined
from predbn.evaluation import resolve_splits as resolve
from predbn.models import Classifier
from predbn.norm import named_layers

__all__ = ["HISTOGRAMS", "SPECTRA", "TRAINING", "look_inside"]

TRAINING = "training"
CHANNELS = 8
"""Channels of a layer whose histograms are kept: more are not drawn."""
BINS = 32
TOP = {"embeddings": 12, "logits": 9}
"""Eigenvalues that are compared. The paper's embeddings have no more than 12 that are not near 0; of ten logits the
softmax does not see one direction."""

_SHARED = [pa.field("model", pa.string()), pa.field("series", pa.string()), pa.field("place", pa.string())]
HISTOGRAMS = pa.schema(
    [*_SHARED, pa.field("channel", pa.int64()), pa.field("x", pa.float64()), pa.field("density", pa.float64())]
)
SPECTRA = pa.schema([*_SHARED, pa.field("rank", pa.int64()), pa.field("value", pa.float64())])
_SCHEMAS = {"results": RESULTS, "histograms": HISTOGRAMS, "spectra": SPECTRA}

Rows = dict[str, list[dict[str, Any]]]


def look_inside(
    plan: Plan,
    out: str | Path,
    *,
    engine: Engine | None = None,
    models: dict[str, Classifier] | None = None,
    progress: Callable[[int, int, str], object] | None = None,
) -> None:
    """Carry out a plan: its networks under train and prediction-time BN on its splits, looked into."""
    device = (engine or InProcess()).device
    job = Job(plan, device, models=models or {})
    store = Store(out)
    context = json.loads(json.dumps(job.context()))
    with store.writing():
        before = store.card()
        if before is not None:
            check_same(str(out), before, context)
            context = joined(before, context)
        rows = {name: _read(Path(out) / f"{name}.parquet") for name in _SCHEMAS}
        done = {row["model"] for row in rows["results"]}
        names = [name for members in job.members.values() for name in members if name not in done]
        splits = resolve(plan.shifts, plan.severities, job.source.names)
        steps = _Steps(progress, len(names) * (len(splits) + 2))
        for name in names:
            (found,) = each_on_one_core(lambda name: _network(job, plan, name, splits, steps), [name])
            for table in _SCHEMAS:
                rows[table] += found[table]
            for table, schema in _SCHEMAS.items():
                _write(Path(out) / f"{table}.parquet", pa.Table.from_pylist(rows[table], schema))
            _write(Path(out) / "reliability.parquet", RELIABILITY.empty_table())
            store.write_text("plan.toml", write_plan(plan))
            store.write_text("card.json", to_json(make_card(plan, context, hardware_of(device), [])))


@dataclass
class _Steps:
    """Tells how far it is."""

    progress: Callable[[int, int, str], object] | None
    total: int
    done: int = 0

    def tell(self, what: str) -> None:
        self.done += 1
        if self.progress is not None:
            self.progress(self.done, self.total, what)


def _network(job: Job, plan: Plan, name: str, splits: Sequence[Split], steps: _Steps) -> Rows:
    model = job.worker.shelf.model(name)
    strategies = [text for text in plan.strategies if text == "train" or next(named_layers(model), None) is not None]
    has_layers = len(strategies) > 1
    size = plan.batch_sizes[0]
    assert isinstance(size, int)
    training = _Training(_training_images(plan), size, job.device)
    outputs = "all" if has_layers else None
    ranges = profile(model, training, outputs=outputs)
    steps.tell(f"training images, {name}")
    reference = profile(model, training, like=ranges, bins=BINS, outputs=outputs)
    steps.tell(f"training images, {name}")
    found: Rows = {"results": [], "histograms": [], "spectra": []}
    pooled: dict[str, Profile] = {}
    for split, batches in _batches(job, plan, name, splits, size):
        seen = profiles(model, batches, strategies, like=reference, outputs=outputs)
        for strategy, one in seen.items():
            key = {"model": name, "method": "vanilla", "strategy": strategy, **split._asdict()}
            key |= {"batch_size": size, "order": plan.orders[0], "seed": plan.seeds[0]}
            found["results"] += [{**key, "metric": m, "value": v} for m, v in _measured(reference, one).items()]
            if split.severity:
                pooled[strategy] = pooled[strategy].merge(one) if strategy in pooled else one
        steps.tell(f"{split}, {name}")
    for series, one in {TRAINING: reference, **pooled}.items():
        shared = {"model": name, "series": series}
        found["histograms"] += [{**shared, **row} for row in _histograms(one)]
        found["spectra"] += [{**shared, **row} for row in _spectra(one)]
    return found


def _batches(
    job: Job, plan: Plan, name: str, splits: Sequence[Split], size: int
) -> Iterator[tuple[Split, Iterator[Tensor]]]:
    """Every split with its images in batches.

    They are corrupted in blocks of many, for what an image becomes depends on nothing but its index, and on a GPU while
    those before them are looked at, for some corruptions run on the host.
    """
    block = job.worker.block(name, size)
    streams = [partial(job.worker.stream, split, plan.orders[0], plan.seeds[0], block) for split in splits]
    coming = streams[0]() if streams else iter(())
    for number, split in enumerate(splits, start=1):
        blocks = coming
        first = list(islice(blocks, 1))
        coming = streams[number]() if number < len(streams) else iter(())
        yield split, (batch for each in chain(first, blocks) for batch in each.inputs.split(size))


def _measured(reference: Profile, one: Profile) -> dict[str, float]:
    """What is kept of one split under one strategy, as metrics.

    divergence    T⁻¹ Σ ln q̂/p̂ of the embeddings, as the paper approximates KL(p ‖ q), dimensions independent
    distance      W₁ to the training distribution, in its standard deviations, mean over channels, then layers
    outside       share of the values beyond the training data's range, mean over channels, then layers
    spectrum_gap  mean |ln λ − ln λ'| over the largest eigenvalues of embeddings and training embeddings
    logit_gap     the same of the logits
    logit_size    root mean square of the logits
    """
    known, new = ({place: each.distributions[place].gaussian for place in TOP} for each in (reference, one))
    logits = new["logits"]
    values = {
        "divergence": paper_divergence(known["embeddings"], new["embeddings"]),
        "spectrum_gap": _gap(known, new, "embeddings"),
        "logit_gap": _gap(known, new, "logits"),
        "logit_size": float((logits.var + logits.mean.square()).mean().sqrt()),
    }
    pairs = [(reference.layers[name], layer) for name, layer in one.layers.items()]
    if pairs:
        distances = [wasserstein(known.histogram, new.histogram) / unit(known.gaussian) for known, new in pairs]
        values["distance"] = float(torch.stack([each.mean() for each in distances]).mean())
        values["outside"] = float(torch.stack([new.histogram.outside.mean() for _, new in pairs]).mean())
    return values


def _gap(known: dict[str, Gaussian], new: dict[str, Gaussian], place: str) -> float:
    before, after = (spectrum(each[place], top=TOP[place]) for each in (known, new))
    least = 1e-6 * float(before[0])
    return float((after.clamp(min=least).log() - before.clamp(min=least).log()).abs().mean())


def _histograms(one: Profile) -> Iterator[dict[str, Any]]:
    """Densities bin by bin, empty bins left out."""
    for place, distribution in one.distributions.items():
        histogram = distribution.histogram
        edges, density = histogram.bins.edges, histogram.density
        kept = range(min(CHANNELS, distribution.columns)) if place != "logits" else range(distribution.columns)
        for channel in kept:
            for cell in density[channel].nonzero().flatten().tolist():
                middle = 0.5 * float(edges[channel, cell] + edges[channel, cell + 1])
                yield {"place": place, "channel": channel, "x": middle, "density": float(density[channel, cell])}


def _spectra(one: Profile) -> Iterator[dict[str, Any]]:
    for place in TOP:
        for rank, value in enumerate(spectrum(one.distributions[place].gaussian).tolist(), 1):
            yield {"place": place, "rank": rank, "value": value}


class _Training:
    """Training images in batches, as often as one likes."""

    def __init__(self, images: Images, size: int, device: str) -> None:
        self._images, self._size, self._device = images, size, device

    def __iter__(self) -> Iterator[Any]:
        return iter(self._images.batches(self._size, device=self._device))


def _training_images(plan: Plan) -> Images:
    """The images that the networks were trained on; for the embedded sample, which has none, held-out ones."""
    if plan.data == "sample":
        images = open_images("sample", "validation")
        return images if plan.images is None else images.take(min(len(images), 5 * plan.images))
    return open_images(plan.data, "train")


def _read(path: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pq.read_table(path, partitioning=None).to_pylist() if path.exists() else []
    return rows


def _write(path: Path, table: pa.Table) -> None:
    pq.write_table(table, part_of(path), compression="zstd")
    finish(path)
