"""Rows instead of pictures, against a slow, obvious reference."""

import json

import pytest
import torch
from sklearn.metrics import roc_auc_score
from typer.testing import CliRunner

from predbn import cli, metrics
from predbn.data.criteo import PERCENTAGES, Randomised, Rows, criteo, prepare_synthetic, synthetic_rows
from predbn.evaluation import EvaluationError, InProcess, Plan, Split, evaluate, read_plan
from predbn.evaluation.job import Job
from predbn.evaluation.plan_file import write_plan
from predbn.evaluation.source import RowSource, make_source
from predbn.evaluation.splits import positions
from predbn.methods import Temperature
from predbn.models import ClickModel, CriteoNetwork, CriteoSizes, write_weights
from predbn.norm import adapted

from . import tiny

SIZES = CriteoSizes(widths=(48, 24)).limited(buckets=40, dimensions=3)


def learnable_rows(count: int) -> torch.Tensor:
    """Rows whose label says whether their numbers are large, but for one row in eight, so that a small network knows
    half of them from the other half."""
    table = torch.from_numpy(synthetic_rows(count, seed=0).table).clone()
    numbers = table[:, 1:14].clamp(min=-1).double().add(2).log()
    large = ((numbers - numbers.mean(0)) / numbers.std(0)).sum(1)
    table[:, 0] = (large > large.median()).int() ^ (torch.arange(count) % 8 == 0).int()
    return table


TABLE = learnable_rows(1400)
TRAIN, VALIDATION = Rows(TABLE[:800], "train"), Rows(TABLE[800:1000], "validation", first=800)
TEST = Rows(TABLE[1000:], "test", first=1000)
DATA = Randomised(TEST, train=TRAIN, block=100)
ROUNDING = 1e-6
"""Of σ(z / 8) in single precision; it moves by 1/32 of what z does."""
STRATEGIES = ("train", "ema", "population", "batch[eps=0.1]")


def model(seed: int, table: torch.Tensor = TABLE[:800]) -> ClickModel:
    """A network of random features, most of them of the numbers, that has seen rows and predicts them.

    Its last layer is the ridge regression of the labels on what comes before, z = 4 xᵀ(XᵀX + 1)⁻¹Xᵀ(2y − 1), so that
    Σ (2y − 1) z > 0 on these rows whatever the features: there is a temperature, and seeds differ.
    """
    torch.manual_seed(seed)
    made = ClickModel(CriteoNetwork(SIZES, momentum=0.5))
    inputs, labels = table[:, 1:], table[:, 0].double()
    seen: list[torch.Tensor] = []
    with torch.no_grad():
        made.network.hidden[0].weight[:, 13:] *= 0.2
        for part in inputs.split(200):
            made.train()(part)
        hook = made.network.last.register_forward_pre_hook(lambda _, given: seen.append(given[0].double()))
        made.eval()(inputs)
        hook.remove()
        x = torch.cat((seen[0], torch.ones(len(inputs), 1, dtype=torch.float64)), 1)
        found = torch.linalg.solve(x.T @ x + torch.eye(x.shape[1]), x.T @ (2 * labels - 1))
        made.network.last.weight.copy_(4 * found[None, :-1])
        made.network.last.bias.copy_(4 * found[-1:])
    return made


def job(**given) -> Job:
    plan = Plan(**{"models": ["m/*"], "data": "criteo", "shifts": ("tokens",), "batch_sizes": (100,), **given})
    return Job(plan, data=DATA, validation=VALIDATION, models={f"m/{seed}": model(seed) for seed in range(3)})


def logits_of(made: ClickModel, inputs: torch.Tensor, size: int, strategy: str) -> torch.Tensor:
    name, _, eps = strategy.partition("[")
    options = {"eps": 0.1} if eps else {}
    if name == "population":
        options["loader"] = inputs.split(size)
    with torch.no_grad(), adapted(made, name, **options):
        return torch.cat([made(batch) for batch in inputs.split(size)])


def check(row, logs: torch.Tensor, labels: torch.Tensor) -> None:
    p = logs.exp()
    assert row.metrics["accuracy"] == pytest.approx(float(metrics.accuracy(p, labels)), abs=1e-9)
    assert row.metrics["brier"] == pytest.approx(float(metrics.brier(p, labels)), abs=2e-6)
    assert row.metrics["nll"] == pytest.approx(-float(logs.gather(1, labels[:, None]).mean()), rel=1e-5)
    assert row.metrics["ece"] == pytest.approx(float(metrics.ece(p, labels)), abs=1e-4)
    odds = (logs[:, 1] - logs[:, 0]).double()
    assert row.metrics["auc"] == pytest.approx(roc_auc_score(labels, odds), abs=auc_bound(odds, labels))


def auc_bound(odds: torch.Tensor, labels: torch.Tensor) -> float:
    """How far an AUC from cells can be from the exact one of the log odds.

    Scores σ(z / 8) are counted in 2¹⁶ cells. A pair of a click and another row that falls into one cell counts ½ in
    place of 0 or 1: half the share of such pairs is the bound. Batches of another size round otherwise, so that pairs
    count as such which may share a cell, and once more where rounding may even turn them round.
    """
    one, other = (odds / 8).sigmoid()[labels == 1, None], (odds / 8).sigmoid()[labels == 0]
    lower, higher = torch.minimum(one, other), torch.maximum(one, other)
    together = ((higher - ROUNDING) * 2**16).floor() <= ((lower + ROUNDING) * 2**16).floor()
    turned = higher - lower <= 2 * ROUNDING
    return float((together.double() + turned.double()).mean()) / 2 + 1e-12


@pytest.mark.parametrize(
    ("strategy", "kind"), [*((each, "tokens") for each in STRATEGIES), ("batch", "columns"), ("batch", "marginals")]
)
def test_rows_equal_the_reference(strategy, kind):
    made = job(strategies=[strategy], batch_sizes=(8, 100), seeds=(3,), shifts=(kind,))
    (unit,) = [unit for unit in made.split_units([], set()) if unit.split.severity == 50]
    rows = made.worker.do(unit).rows
    assert len(rows) == 6
    order = positions("shuffled", TEST.labels, 3)
    (batch,) = DATA.seeded(3).batches(kind, 50, len(TEST), order=order)
    for row in rows:
        logits = logits_of(model(int(row.cell.model[-1])), batch.inputs, row.cell.batch_size, strategy)
        check(row, logits.log_softmax(1), batch.labels)


def test_ensembles_and_temperatures_work_as_for_pictures():
    made = job(methods=("ensemble", "temperature"), strategies=("batch",), orders=("official",))
    fits = [made.worker.do(unit).fits[0] for unit in made.temperature_units()]
    units = {unit.split.severity: unit for unit in made.split_units(fits, set())}
    assert sorted(units) == list(PERCENTAGES)
    rows = {row.cell[:2]: row for row in made.worker.do(units[25]).rows}
    (batch,) = DATA.batches("tokens", 25, len(TEST))
    logits = [logits_of(model(seed), batch.inputs, 100, "batch") for seed in range(3)]
    mean = torch.stack([each.softmax(1) for each in logits]).mean(0)
    check(rows["m/*", "ensemble"], mean.log(), batch.labels)
    value = {fit.model: fit.value for fit in fits}["m/1"]
    found = Temperature.fit(
        logits_of(model(1), VALIDATION.table(torch.from_numpy(_shuffled(200)))[:, 1:], 100, "batch"),
        labels=VALIDATION.labels[_shuffled(200)],
    )
    assert value == pytest.approx(found.value, rel=1e-3)
    check(rows["m/1", "temperature"], (logits[1] / value).log_softmax(1), batch.labels)


def _shuffled(count: int):
    from predbn.shifts import orders

    return orders.shuffled(count, seed=0)


def test_clean_rows_become_a_source_with_every_split():
    source = make_source(TEST)
    assert isinstance(source, RowSource)
    assert source.has_clean
    assert source.names == ["tokens", "columns"]
    known = make_source(DATA, images=50).describe()
    assert (known["rows"], known["of"], known["classes"]) == (50, 400, 2)
    assert set(known["sha256"]) == {"rows", "marginals"}
    assert "columns for 100 rows at once" in known["corruptions"]
    seen = torch.cat([batch.index for batch in source.stream(Split("clean", 0), "official", 0, 64)])
    assert torch.equal(seen, TEST.index)
    with pytest.raises(EvaluationError, match="rows have no mixed-2: only pictures have mixtures"):
        source.stream(Split("mixed-2", 5), "official", 0, 64)


def test_rows_are_not_attacked():
    with pytest.raises(EvaluationError, match="rows have no order 'attacked:everyone': only pictures can be attacked"):
        RowSource(DATA).stream(Split("clean", 0), "attacked:everyone", 0, 10)


def test_a_plan_of_rows_has_its_own_splits(tmp_path):
    plan = Plan(models=["m"], data="criteo:folder")
    assert plan.severities == PERCENTAGES
    assert plan.validation_data == "criteo:folder"
    assert Plan(models=["m"], data="criteo:folder#all").validation_data is None
    assert Plan(models=["m"]).severities == (1, 2, 3, 4, 5)
    (tmp_path / "plan.toml").write_text(write_plan(plan))
    assert read_plan(tmp_path / "plan.toml") == plan
    for wrong, message in (
        ({"severities": [3]}, "severity 3 is not one of the percentages"),
        ({"shifts": ["fog"]}, "rows have no shift 'fog'"),
        ({"shifts": ["mixed-2"]}, "rows have no shift 'mixed-2'"),
    ):
        with pytest.raises(EvaluationError, match=message):
            Plan(models=["m"], data="criteo", **wrong)


def test_pictures_and_rows_do_not_mix(tmp_path):
    plan = Plan(models=["m"], data="criteo", shifts=("clean",))
    with pytest.raises(EvaluationError, match="m takes pictures, but test-randomised has rows"):
        evaluate(plan, tmp_path, data=DATA, models={"m": tiny.classifier(0, classes=2)})
    with pytest.raises(EvaluationError, match="m takes rows, but the data has pictures"):
        evaluate(Plan(models=["m"], shifts=("clean",)), tmp_path, models={"m": model(0)})


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """A folder with prepared rows and the weights of two networks."""
    place = tmp_path_factory.mktemp("criteo")
    prepare_synthetic(3000, place / "rows")
    rows = criteo("train", place / "rows")
    table = rows.table(torch.arange(len(rows)))
    for seed in range(2):
        state = model(seed, table).network.state_dict()
        write_weights(place / f"{seed}.safetensors", state, {"sizes": SIZES.to_dict(), "eps": 1e-3})
    return place


def test_the_command_measures_clicks(prepared, tmp_path):
    out = tmp_path / "run"
    arguments = ["evaluate", "--data", "criteo", "--root", str(prepared / "rows"), "--out", str(out), "--no-report"]
    arguments += ["--model", f"file:{prepared}/*.safetensors#criteo-mlp", "--method", "vanilla", "--method", "ensemble"]
    arguments += ["--method", "temperature", "--severity", "50", "--order", "official", "--batch-size", "100", "--json"]
    done = CliRunner().invoke(cli.app, arguments, catch_exceptions=False)
    assert done.exit_code == 0
    summary = json.loads(done.stdout)["by_severity"]
    assert {row["metric"] for row in summary} == {"accuracy", "auc", "brier", "confidence", "ece", "nll"}
    assert {row["severity"] for row in summary} == {0, 50}
    assert {row["method"] for row in summary} == {"vanilla", "ensemble", "temperature"}
    card = json.loads((out / "card.json").read_text())
    assert card["data"]["name"] == "criteo-synthetic-test-randomised"
    assert card["validation"]["rows"] == len(criteo("validation", prepared / "rows"))


def test_a_test_set_of_its_own_needs_validation_data_for_what_is_fitted(prepared, tmp_path):
    rows = prepared / "rows"
    given = {"models": [f"file:{prepared}/0.safetensors#criteo-mlp"], "data": f"criteo:{rows}#all", "shifts": ["clean"]}
    with pytest.raises(EvaluationError, match="names no validation data"):
        evaluate(Plan(**given, methods=("temperature",)), tmp_path / "a")
    results = evaluate(Plan(**given, methods=("temperature",), validation=f"criteo:{rows}"), tmp_path / "b")
    assert results.card["data"]["rows"] == 3000
    assert len(results.fits) == 2


@pytest.mark.gpu
def test_a_gpu_finds_the_same(tmp_path):
    models = {f"m/{seed}": model(seed) for seed in range(2)}
    plan = Plan(
        models=["m/*"],
        data="criteo",
        methods=("vanilla", "temperature", "ensemble"),
        strategies=("train", "batch", "prior(N=16)", "ema"),
        severities=(25, 95),
        batch_sizes=(64, 100),
    )
    given = {"data": DATA, "validation": VALIDATION, "models": models}
    here = evaluate(plan, tmp_path / "cpu", **given).frame
    there = evaluate(plan, tmp_path / "cuda", engine=InProcess("cuda"), **given).frame
    assert here.drop(columns="value").equals(there.drop(columns="value"))
    assert (here["value"] - there["value"]).abs().max() < 6e-3
