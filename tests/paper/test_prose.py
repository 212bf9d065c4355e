"""Numbers in texts are those of the results."""

from __future__ import annotations

import pytest

from predbn.metrics import Interval
from predbn.paper import Claim, Finding, Measurement, PaperError, Verdict
from predbn.paper.prose import fill_in, read_sections

GAINS = tuple(
    Measurement(f"{metric}: gain ({method})", Interval(value, value - 0.01, value + 0.01, 0.95), "above", 0.0, 19, "x")
    for metric, method, value in (("ECE", "vanilla", 0.09), ("ECE", "ensemble", 0.05), ("Brier", "vanilla", 0.2))
)


def found(id: str, verdict: Verdict = Verdict.HOLDS, measurements: tuple[Measurement, ...] = GAINS) -> Finding:
    return Finding(Claim(id, "figure 1", "s", "i", lambda runs: measurements), verdict, measurements)


FINDINGS = [found("X.1"), found("X.2", Verdict.UNMEASURED, ()), found("X.3", Verdict.FAILS)]


@pytest.mark.parametrize(
    ("text", "filled"),
    [
        ("gains {{X.1 | ECE | ensemble}}.", "gains +0.050."),
        ("{{X.1|Brier}} ({{X.1 | Brier | bounds}})", "+0.200 (+0.190 to +0.210)"),
        ("gains {{X.1 | Brier | size}} of it", "gains 0.200 of it"),
        (r"| {{X.1 \| ECE \| vanilla}} |", "| +0.090 |"),
        ("X.3 {{X.3}}", "X.3 does not hold"),
        ("{{X.2 | ECE}}", "not measured"),
        ("{{claims of the paper}} claims, {{claims of the paper: holds}} hold", "3 claims, 1 hold"),
        ("nothing { to | fill }", "nothing { to | fill }"),
    ],
)
def test_a_field_is_the_number_of_the_results(text, filled, nothing):
    assert fill_in(text, nothing, FINDINGS) == filled


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{{X.1 | ECE}}", "fits 2 measurements"),
        ("{{X.1 | AUC}}", "fits 0 measurements"),
        ("{{X.9 | ECE}}", "names no claim and no quantity"),
        ("{{mean | methods | train | ece | 7}}", "no such plan or severity"),
    ],
)
def test_a_field_that_fits_nothing_or_several_numbers_is_refused(text, message, nothing):
    with pytest.raises(PaperError, match=message):
        fill_in(text, nothing, FINDINGS)


def test_a_mean_is_that_of_the_series(as_the_paper, nothing):
    frame = as_the_paper["methods"].frame
    rows = frame[(frame["method"] == "ensemble") & (frame["strategy"] == "train") & (frame["metric"] == "accuracy")]
    field = "{{mean | methods | train | accuracy | 5 | method=ensemble}}"
    assert fill_in(field, as_the_paper, []) == f"{100 * rows[rows['severity'] == 5]['value'].mean():.1f}"
    assert fill_in(field, nothing, []) == "not measured"


def test_sections_are_read_by_their_headings(tmp_path):
    path = tmp_path / "text.md"
    path.write_text("# Title\n\nignored\n\n## C1.1\n\nOne.\n\n### More\n\nTwo.\n\n## Findings\nThree.\n")
    assert read_sections(path) == {"C1.1": "One.\n\n### More\n\nTwo.", "Findings": "Three."}
    assert read_sections(tmp_path / "none.md") == {}
