"""Activations measured on a few images, compared with calling the diagnostics directly."""

from dataclasses import replace

import pandas as pd
import pytest
import torch

from predbn.data import sample
from predbn.diagnostics import paper_divergence, profile
from predbn.evaluation import Job, Plan, Split, write_table
from predbn.evaluation.source import PictureSource
from predbn.models import load, zoo
from predbn.paper import Runs
from predbn.paper.crops import crop_like_training
from predbn.paper.run_activations import _batches, run_activations

pytestmark = pytest.mark.skipif("resnet20-cifar10/batch/0" not in zoo.names(), reason="the zoo has no networks here")

NETWORK = "zoo:resnet20-cifar10/batch/0"
PLAN = Plan(
    models=(NETWORK,),  # type: ignore[arg-type]
    shifts=("clean", "fog"),
    severities=(5,),
    images=16,
    batch_sizes=(8,),
)
CLEAN = replace(PLAN, shifts=("clean",), images=4, batch_sizes=(4,))


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("inside")
    run_activations(PLAN, folder / "inside-crops")
    return Runs(folder)


def test_the_divergence_is_that_of_the_diagnostics(runs):
    model = load(NETWORK)
    training = [batch.images for batch in sample("validation").take(160).batches(8)]
    source = PictureSource(sample("test"), images=16)
    shifted = [batch.images for batch in source.stream(Split("fog", 5), "shuffled", 0, 8)]
    frame = runs["inside-crops"].frame
    (crops,) = crop_like_training(sample("validation").take(160), padding=2).batches(160)
    seen = profile(model, crops.images.split(8), "batch", outputs=None)
    known = profile(model, training, outputs=None)
    for strategy in ("train", "batch"):
        new = profile(model, shifted, strategy, outputs=None)
        wanted = paper_divergence(known.distributions["embeddings"], new.distributions["embeddings"])
        row = frame[(frame["strategy"] == strategy) & (frame["corruption"] == "fog")]
        found = row.set_index("metric")["value"]
        assert found["divergence"] == pytest.approx(wanted, rel=1e-3)
        wanted = paper_divergence(seen.distributions["embeddings"], new.distributions["embeddings"])
        assert found["divergence_crops"] == pytest.approx(wanted, rel=1e-3)


def test_batches_do_not_depend_on_the_block_size(monkeypatch):
    job = Job(replace(PLAN, shifts=("gaussian_noise",), batch_sizes=(6,), images=40))
    monkeypatch.setattr(job.worker, "block", lambda name, size: 3 * size)
    (split,) = job.splits
    wanted = job.source.stream(split, "shuffled", 0, 6)
    for found, batch in zip(_batches(job, NETWORK, split, 6), wanted, strict=True):
        assert torch.equal(found, batch.images)


def test_histograms_are_densities_and_spectra_descend(runs):
    histograms = pd.read_parquet(runs.folder / "inside-crops" / "histograms.parquet")
    assert set(histograms["series"]) == {"training", "train", "batch"}
    assert histograms["place"].nunique() == 23
    assert (histograms["density"] > 0).all()
    spectra = pd.read_parquet(runs.folder / "inside-crops" / "spectra.parquet")
    for _, part in spectra.groupby(["series", "place"]):
        assert part.sort_values("rank")["value"].is_monotonic_decreasing


def test_existing_results_are_not_computed_again(runs):
    calls = []
    run_activations(PLAN, runs.folder / "inside-crops", progress=lambda *now: calls.append(now))
    assert calls == []


@pytest.fixture(scope="module")
def clean(tmp_path_factory):
    """The files of a run on a few clean images."""
    folder = tmp_path_factory.mktemp("clean")
    run_activations(CLEAN, folder)
    return {path.name: path.read_bytes() for path in folder.glob("*.parquet")}


@pytest.mark.parametrize("written", range(5))
def test_a_network_interrupted_between_its_tables_is_measured_again(clean, tmp_path, monkeypatch, written):
    """After so many of the five tables, the run is interrupted and started again."""
    left = iter(range(written))

    def write_or_stop(*arguments, **options):
        if next(left, None) is None:
            raise KeyboardInterrupt
        write_table(*arguments, **options)

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr("predbn.paper.run_activations.write_table", write_or_stop)
        run_activations(CLEAN, tmp_path)
    run_activations(CLEAN, tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.glob("*.parquet")} == clean
