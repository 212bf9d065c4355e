"""The border study on made-up results: a set as the paper says, and one without an effect."""

from __future__ import annotations

import json
import sys

import pytest

from predbn.paper import PLANS, PaperError, Runs, document, write_document
from predbn.paper.borders import BORDERS, border_runs, border_tables
from predbn.paper.prose import fill_in

from .world import World

STUDY = tuple(name for name in PLANS if name not in ("methods", "inside"))


@pytest.fixture(scope="module")
def studied(tmp_path_factory) -> Runs:
    """Two sets of the three."""
    folder = World().write(tmp_path_factory.mktemp("study") / "r", quick=True, skip=STUDY)
    World(1.0).write(folder / "border-zero-4", quick=True, skip=STUDY)
    World(0.0).write(folder / "border-reflect-4", quick=True, skip=STUDY)
    return Runs(folder)


def cells(text: str, start: str) -> list[str]:
    row = next(line for line in text.splitlines() if line.startswith(f"| {start}"))
    return [cell.strip() for cell in row.split("|")[2:-1]]


def draw_no_others(monkeypatch) -> None:
    """Drawing the figures of all experiments is slow."""
    monkeypatch.setattr(sys.modules["predbn.paper.document"], "_draw_figures", lambda runs: {})


def test_each_set_has_its_own_numbers_and_verdicts(studied):
    text = border_tables(studied)
    assert cells(text, "claim")[1:] == [BORDERS["zero-4"], BORDERS["reflect-4"]]
    assert cells(text, "networks") == ["3", "3", "3"]
    assert cells(text, "C1.1:") == ["holds", "holds", "not clear"]
    assert cells(text, "D1.1:")[1] == "holds"
    for row, strategy in (("train BN", "train"), ("prediction BN", "batch")):
        expected = []
        for each in (studied, *border_runs(studied).values()):
            frame = each["methods"].frame
            clean = frame[(frame["severity"] == 0) & (frame["metric"] == "accuracy") & (frame["method"] == "vanilla")]
            expected.append(f"{100 * clean[clean['strategy'] == strategy]['value'].mean():.1f}")
        assert cells(text, f"accuracy on clean images, %, {row}") == expected
    assert "C2.3" not in text  # no set has the plans on crops
    assert "nan" not in text


def test_the_section_is_there_only_with_results(studied, tmp_path, monkeypatch):
    (studied.root / "replication.md").write_text(
        "## The border of training crops\n\nOn clean images: {{border | zero-4 | C2.1 | accuracy}}.\n"
    )
    draw_no_others(monkeypatch)
    text = write_document(tmp_path / "page.md", studied, figures=tmp_path / "figures").read_text()
    assert "## The border of training crops" in text
    gain = cells(text, "gain of prediction BN on clean images, points")[1]
    assert f"On clean images: {gain.partition(' ')[0]}." in text
    assert "(figures/border-gain.svg)" in text
    assert [path.name for path in (tmp_path / "figures").iterdir()] == ["border-gain.svg"]
    monkeypatch.setattr("predbn.paper.borders.BORDERS", {})
    assert "border of training crops" not in document(studied, figures="figures")


def test_the_zoos_networks_stand_beside_the_sets(tmp_path):
    folder = World().write(tmp_path / "r", quick=True, skip=STUDY)
    assert border_tables(Runs(folder)) == ""
    World(0.0).write(folder / "border-zero-2", quick=True, skip=STUDY)
    assert list(border_runs(Runs(folder))) == ["zero-2"]
    assert [head.split(":")[0] for head in cells(border_tables(Runs(folder)), "claim")] == [
        "the zoo's networks",
        BORDERS["zero-2"],
    ]


def test_fields_on_sets(studied):
    assert fill_in("{{border | reflect-4 | C1.1}}", studied, []) == "not clear"
    assert fill_in("{{border | zero-2 | C1.1}}", studied, []) == "not measured"
    mean = fill_in("{{border | zero-4 | mean | methods | train | accuracy | clean}}", studied, [])
    assert mean == cells(border_tables(studied), "accuracy on clean images, %, train BN")[1]
    with pytest.raises(PaperError, match="names no border"):
        fill_in("{{border | zero-3 | C1.1}}", studied, [])


@pytest.mark.parametrize("same", [True, False])
def test_the_recipe_is_that_of_the_cards(studied, tmp_path, same):
    for number, name in enumerate(("zero-4", "zero-2")):
        folder = World().write(tmp_path / f"border-{name}", quick=True, skip=STUDY)
        recipe = {"optimiser": "SGD", "epochs": 100 if same else 100 + number, "batch_size": 256, "learning_rate": 0.2}
        path = folder / "methods" / "card.json"
        card = {**json.loads(path.read_text()), "models": {"a": {"card": {"recipe": {**recipe, "padding": number}}}}}
        path.write_text(json.dumps(card))
    text = border_tables(Runs(tmp_path))
    assert ("The sets are trained alike: SGD, 100 epochs, batches of 256, learning rate 0.2." in text) is same
    assert ("recipes of the sets differ" in text) is not same
