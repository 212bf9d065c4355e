"""Claims in a world that is as the paper says, in one without any effect, and without results."""

from __future__ import annotations

import pytest

from predbn.paper import EXPERIMENTS, PaperError, Verdict, findings_as_data, verdict_summary, verify

MEASURABLE = [each for each in EXPERIMENTS.values() if each.plans and not each.id.startswith(("I", "auto"))]


@pytest.mark.parametrize("experiment", MEASURABLE, ids=lambda experiment: experiment.id)
def test_every_claim_holds_if_the_results_are_as_the_paper_says(experiment, as_the_paper):
    findings = verify(as_the_paper, [experiment.id])[experiment]
    assert {finding.claim.id: finding.verdict for finding in findings} == {
        claim.id: Verdict.HOLDS for claim in experiment.claims
    }


TRUE_OF_NOTHING = {"C2.2", "C5.2", "C8.2", "D2.1", "D3.2", "K1.1", "K1.3"}
"""Claims that are true, or nearly so, if prediction statistics change nothing: a loss of less than two points, an
ensemble that gains nothing from eps, a worse network that is worse, divergence that goes with error, clicks that are
harder to tell from randomised features."""


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
    assert (
        verdict_summary(found)
        == f"Of {sum(map(len, found.values()))} claims, {sum(map(len, found.values()))} are not measured."
    )


def test_experiments_without_results_have_a_reason(as_the_paper):
    found = verify(as_the_paper, ["i1", "I5"])
    assert [experiment.id for experiment in found] == ["I1", "I5"]
    assert all(finding.why for findings in found.values() for finding in findings)


def test_an_unknown_id_is_refused(as_the_paper):
    with pytest.raises(PaperError, match="no experiment 'C9': there are C1"):
        verify(as_the_paper, ["C9"])


def test_findings_as_data_are_plain(as_the_paper):
    import json

    data = json.loads(json.dumps(findings_as_data(verify(as_the_paper, ["C1"]))))
    assert [claim["id"] for claim in data] == ["C1.1", "C1.2", "C1.3", "C1.4", "C1.5"]
    first = data[0]["measurements"][0]
    assert first["low"] < first["estimate"] < first["high"]
    assert first["over"] == "19 corruptions"


def test_nothing_to_check_is_said_in_a_sentence():
    assert verdict_summary({}) == "There are no claims to check."
