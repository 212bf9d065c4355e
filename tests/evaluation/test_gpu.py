"""What is different on a GPU: CUDA graphs, half formats, prefetching, one check for finite logits at the end."""

from functools import partial

import pytest
import torch

from predbn.data import sample
from predbn.evaluation import EvaluationError, InProcess, Plan, Setting, Split
from predbn.evaluation.cuda_graphs import GraphedFunction, GraphStream, GraphStreams
from predbn.evaluation.job import Job
from predbn.evaluation.precision import numerics
from predbn.evaluation.units import Cell, SplitUnit

from . import tiny

pytestmark = pytest.mark.gpu

CUDA = torch.device("cuda")

STRATEGIES = [str(Setting.parse(name)) for name in ("train", "batch", "ema", "frozen", "population")]
CELLS = tuple(
    Cell(model, method, strategy, size)
    for model, method in (("t/0", "vanilla"), ("t/1", "vanilla"), ("all", "ensemble"))
    for strategy in STRATEGIES
    for size in (50, 32)
)


def rows(device, precision="fp32"):
    models = {f"t/{k}": tiny.classifier(k) for k in range(2)}
    job = Job(
        Plan(models=list(models), strategies=STRATEGIES, images=130, precision=precision),
        device,
        sample("test"),
        models=models,
    )
    job.worker.members = {"all": list(models)}
    units = [
        SplitUnit(Split(name, 3), "shuffled", 1, CELLS) for name in ("fog", "snow", "in_turn-2", "markov-3-levels-0.8")
    ]
    return [row for unit in units for row in job.worker.do(unit).rows]


def test_a_gpu_finds_what_a_cpu_finds():
    for here, there in zip(rows("cpu"), rows("cuda"), strict=True):
        assert here.cell == there.cell
        assert here.metrics["brier"] == pytest.approx(there.metrics["brier"], abs=2e-5)


def test_a_gpu_finds_the_same_twice():
    assert [row.metrics for row in rows("cuda", "fp16")] == [row.metrics for row in rows("cuda", "fp16")]


@pytest.mark.parametrize("precision", ["tf32", "bf16", "fp16"])
def test_other_precisions_are_close(precision):
    for single, half in zip(rows("cuda"), rows("cuda", precision), strict=True):
        assert single.metrics["brier"] == pytest.approx(half.metrics["brier"], abs=0.02)


def test_logits_that_are_not_finite_stop_the_unit():
    job = Job(Plan(models="b", images=20), "cuda", sample("test"), models={"b": tiny.broken()})
    with pytest.raises(EvaluationError, match="not finite on snow at severity 2"):
        job.worker.do(SplitUnit(Split("snow", 2), "official", 0, (Cell("b", "vanilla", "train", 10),)))


def test_a_graph_gives_what_the_function_gives_on_every_batch():
    place, model = GraphStream(CUDA), tiny.classifier().cuda()
    graphed = GraphedFunction(model, place)
    with torch.inference_mode(), numerics("fp32"):
        for images in torch.randint(0, 256, (3, 16, 3, 32, 32), dtype=torch.uint8, device="cuda"):
            plain = model(images.contiguous(memory_format=torch.channels_last))
            torch.testing.assert_close(graphed(images), plain)
    assert graphed._graphs


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_streams_change_no_bit(monkeypatch, precision):
    found = []
    for streams in (1, 4):
        monkeypatch.setattr("predbn.evaluation.cuda_graphs.STREAMS", streams)
        found.append([row.metrics for row in rows("cuda", precision)])
    assert found[0] == found[1]


def test_graphs_on_several_streams_use_memory_of_their_own():
    """Ten networks many times over, each batch of each at once, against one after another without graphs."""
    streams, models = GraphStreams(CUDA, 4), [tiny.classifier(k).cuda() for k in range(10)]
    functions = [
        (place, GraphedFunction(model, place))
        for number, model in enumerate(models)
        for place in [streams.choose(number % 2, 1)]
    ]
    with torch.inference_mode(), numerics("fp32"):
        for images in torch.randint(0, 256, (20, 64, 3, 32, 32), dtype=torch.uint8, device="cuda"):
            with streams.running():
                found = [place.run(partial(function, images)) for place, function in functions]
            images = images.contiguous(memory_format=torch.channels_last)
            for ours, model in zip(found, models, strict=True):
                torch.testing.assert_close(ours, model(images))


def test_a_function_that_cannot_be_recorded_is_called():
    calls = []

    def function(images):
        calls.append(float(images.float().mean()))
        return images.float() * 2

    graphed, images = (
        GraphedFunction(function, GraphStream(CUDA)),
        torch.ones(2, 3, 4, 4, dtype=torch.uint8, device="cuda"),
    )
    assert torch.equal(graphed(images), images.float() * 2)
    before = len(calls)
    assert torch.equal(graphed(images), images.float() * 2)
    assert len(calls) == before + 1


def test_prefetching_changes_nothing_and_an_error_is_raised_by_the_right_unit(monkeypatch):
    models = {"t/0": tiny.classifier(0)}
    names = ("jpeg_compression", "spatter", "gaussian_noise", "fog")
    cells = (Cell("t/0", "vanilla", STRATEGIES[1], 50), Cell("t/0", "vanilla", STRATEGIES[-1], 32))
    units = [SplitUnit(Split(name, 3), "shuffled", 1, cells) for name in names]

    def job():
        return Job(Plan(models="t/0", strategies=STRATEGIES, images=130), "cuda", sample("test"), models=models)

    alone = job()
    assert list(InProcess("cuda").run(job(), units)) == [alone.worker.do(unit) for unit in units]
    monkeypatch.setattr("predbn.data.shifted.corrupt", lambda *a, **k: 1 / 0)
    results = InProcess("cuda").run(job(), [SplitUnit(Split("clean", 0), "shuffled", 1, cells), units[0]])
    next(results)
    with pytest.raises(ZeroDivisionError):
        next(results)
