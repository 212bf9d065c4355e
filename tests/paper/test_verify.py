"""Claims in a world that is as the paper says, in one without any effect, and without results."""

from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from predbn.commands.paper import FULL as RESULTS
from predbn.common import PaperError
from predbn.paper import EXPERIMENTS, Runs, findings_as_data, verdict_summary, verify
from predbn.paper.claims import Verdict
from predbn.paper.experiments import criteo_randomised_features

ROOT = Path(__file__).resolve().parents[2]

MEASURABLE = [each for each in EXPERIMENTS.values() if each.plans and not each.id.startswith("I")]


@pytest.mark.parametrize("experiment", MEASURABLE, ids=lambda experiment: experiment.id)
def test_every_claim_holds_if_the_results_are_as_the_paper_says(experiment, as_the_paper):
    findings = verify(as_the_paper, [experiment.id])[experiment]
    assert {finding.claim.id: finding.verdict for finding in findings} == {
        claim.id: Verdict.HOLDS for claim in experiment.claims
    }


TRUE_OF_NOTHING = {"C2.2", "C6.4", "C8.2", "D2.1", "D2.4", "D3.2", "K1.1", "K1.3"}
"""Claims that are true, or nearly so, if prediction statistics change nothing: a loss of less than two points,
Fixup on clean images, a worse network that is worse, divergence that goes with
error, clicks that are harder to tell from randomised features."""


def test_no_claim_of_an_effect_holds_without_an_effect(without_effect):
    found = verify(without_effect)
    held = {f.claim.id for findings in found.values() for f in findings if f.verdict is Verdict.HOLDS}
    assert held <= TRUE_OF_NOTHING


def test_without_results_everything_is_not_measured_and_says_why(nothing):
    found = verify(nothing)
    for findings in found.values():
        for finding in findings:
            assert finding.verdict is Verdict.UNMEASURED
            assert finding.why
    every = [finding.claim for findings in found.values() for finding in findings]
    of_paper = sum(claim.is_of_paper for claim in every)
    own = len(every) - of_paper
    assert verdict_summary(found) == (
        f"Of the paper's {of_paper} claims, {of_paper} are not measured. "
        f"Of our own {own} claims, {own} are not measured."
    )


def test_experiments_without_results_have_a_reason(as_the_paper):
    found = verify(as_the_paper, ["i1", "I5"])
    assert [experiment.id for experiment in found] == ["I1", "I5"]
    assert all(finding.why for findings in found.values() for finding in findings)


needs_results = pytest.mark.skipif(not (ROOT / RESULTS).is_dir(), reason="there are no committed results yet")
RESAMPLED = ["D2", "K1"]
"""The experiments with intervals that are bootstrapped."""


@needs_results
def test_no_verdict_depends_on_the_seed_of_the_bootstrap(monkeypatch):
    """Four seeds, for what `verify` resamples and for what was resampled when the plans of Criteo were run."""
    runs = Runs(ROOT / RESULTS)
    read = criteo_randomised_features.read_table

    def read_other_resamples(path: Path) -> pa.Table:
        """As many resamples as are stored, drawn from these: as if they had been made with another seed."""
        table = read(path)
        rows = list(pd.Series(range(len(table))).groupby(table["resample"].to_numpy()).indices.values())
        random, count = np.random.default_rng(runs.seed), len(rows)
        drawn = random.integers(count, size=count) if runs.seed else range(count)
        parts = [rows[number] for number in drawn]
        numbers = np.repeat(np.arange(count), [len(part) for part in parts])
        taken = table.take(np.concatenate(parts))
        return taken.set_column(taken.column_names.index("resample"), "resample", pa.array(numbers))

    monkeypatch.setattr(criteo_randomised_features, "read_table", read_other_resamples)
    verdicts = []
    for runs.seed in range(4):
        found = verify(runs, RESAMPLED)
        verdicts.append({finding.claim.id: finding.verdict for findings in found.values() for finding in findings})
    assert all(each == verdicts[0] for each in verdicts)


@needs_results
def test_all_other_verdicts_are_found_without_random_numbers(monkeypatch):
    def refuse(*_: object) -> None:
        raise AssertionError("a verdict was found with random numbers")

    runs = Runs(ROOT / RESULTS)
    monkeypatch.setattr(np.random, "default_rng", refuse)
    found = verify(runs, [id for id in EXPERIMENTS if id not in RESAMPLED])
    assert {finding.verdict for findings in found.values() for finding in findings} == set(Verdict)
    with pytest.raises(AssertionError, match="with random numbers"):
        verify(runs, ["D2"])


def test_an_unknown_id_is_refused(as_the_paper):
    with pytest.raises(PaperError, match="no experiment 'C9': there are C1"):
        verify(as_the_paper, ["C9"])


def test_findings_as_data_are_plain(as_the_paper):
    import json

    data = json.loads(json.dumps(findings_as_data(verify(as_the_paper, ["C1"]))))
    assert [claim["id"] for claim in data] == ["C1.1", "C1.2", "C1.3", "C1.4", "C1.5", "C1.6"]
    first = data[0]["measurements"][0]
    assert first["low"] < first["estimate"] < first["high"]
    assert (first["over"], first["other"]["over"]) == ("10 networks", "19 corruptions")


def test_nothing_to_check_is_said_in_a_sentence():
    assert verdict_summary({}) == "There are no claims to check."
