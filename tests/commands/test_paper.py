"""`predbn paper` on the command line."""

import json
import re

import pytest
from typer.testing import CliRunner

from predbn import cli

from ..paper.world import World

runner = CliRunner()


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    return World(1.0).write(tmp_path_factory.mktemp("cli") / "results", quick=True, skip=("one-layer",))


def test_list_says_what_there_is(results):
    shown = runner.invoke(cli.app, ["paper", "list", "--results", str(results)], env={"COLUMNS": "200"})
    assert shown.exit_code == 0
    assert "batch-sizes*" in shown.output
    assert "one-layer*" not in shown.output
    listed = json.loads(runner.invoke(cli.app, ["paper", "list", "--json"]).output)
    assert [record["id"] for record in listed][:3] == ["C1", "C2", "C3"]


def test_verify_prints_statement_figures_and_verdict(results):
    arguments = ["paper", "verify", "C3", "C8", "--results", str(results), "--seed", "1"]
    shown = runner.invoke(cli.app, arguments, env={"COLUMNS": "200"})
    assert shown.exit_code == 0
    assert "strong with a batch of just 100 images" in shown.output
    assert "accuracy: gain of prediction BN in batches of 100 at severity 5, points" in shown.output
    assert "holds" in shown.output
    assert "not measured (" in shown.output
    assert "quick results" in shown.output
    data = json.loads(runner.invoke(cli.app, [*arguments, "--json"]).output)
    assert data["quick"] is True
    assert {claim["id"]: claim["verdict"] for claim in data["claims"]} == {
        "C3.1": "holds",
        "C3.2": "holds",
        "C8.1": "not measured",
        "C8.2": "not measured",
    }


def test_verify_counts_our_own_claims_apart(results):
    arguments = ["paper", "verify", "C1", "C2", "--results", str(results)]
    shown = runner.invoke(cli.app, arguments, env={"COLUMNS": "200"})
    assert "C1.1 Under shift" in shown.output
    assert "C2.3 (our own) The loss" in shown.output
    assert re.search(r"Of the paper's 5 claims, \d.* Of our own 4 claims, \d", shown.output)
    claims = json.loads(runner.invoke(cli.app, [*arguments, "--json"]).output)["claims"]
    sources = {claim["id"]: (claim["source"], claim["figure"] is None) for claim in claims}
    assert (sources["C1.1"], sources["C1.6"], sources["C2.1"]) == (("paper", False), ("own", True), ("own", True))
    assert set(sources.values()) == {("paper", False), ("own", True)}


def test_figures_and_document_are_written(results, tmp_path):
    out = tmp_path / "figures"
    arguments = ["paper", "figures", "C7", "--results", str(results), "--out", str(out), "--suffix", "svg"]
    shown = runner.invoke(cli.app, arguments)
    assert shown.exit_code == 0, shown.output
    assert sorted(path.suffix for path in out.iterdir()) == [".html", ".svg", ".svg", ".svg"]
    shown = runner.invoke(cli.app, ["paper", "document", "--results", str(results), "--out", str(tmp_path)])
    assert shown.exit_code == 0, shown.output
    assert "**C7.1** (figure 11)" in (tmp_path / "replication-claims.md").read_text()
