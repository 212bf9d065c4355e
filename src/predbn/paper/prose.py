"""Text about results, with numbers that are filled in from the results.

The text is written by hand and lives next to the results: `discussion.md` of a data set, with a section per claim such
as ``## C1.3``, and `replication.md` in the folder above, with the sections of the document. A number is written as

    {{C1.1 | accuracy | vanilla}}            the mean of that claim's measurement whose name has these words
    {{C1.1 | accuracy | vanilla | bounds}}   its interval
    {{C1.1 | accuracy | vanilla | size}}     the mean without its sign
    {{C1.1}}                                 the verdict of the claim
    {{mean | methods | train | ece | 5}}     the mean of a series (`quantities.mean_of`)
    {{border | zero-2 | C2.1 | accuracy}}    any of these fields on a set of the border study (`borders`)
    {{claims of the paper}}                  another quantity by name (`quantities.named_quantities`)

so that it cannot differ from the results. What is not measured is filled in as "not measured".
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path

from predbn.common import PaperError

from .borders import BORDERS, border_findings, border_runs
from .claims import Finding
from .quantities import NOT_MEASURED, mean_of, named_quantities
from .runs import Runs

_FIELD = re.compile(r"\{\{([^{}]+)\}\}")
_HEADING = re.compile(r"^## +([^\n]+)\n", re.MULTILINE)


def read_sections(path: Path) -> dict[str, str]:
    """The sections of a text by their headings; none if there is no such file."""
    if not path.is_file():
        return {}
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise PaperError(f"{path} is not text in UTF-8 ({error.reason}): save it as UTF-8.") from None
    pieces = _HEADING.split(text)
    return {heading.strip(): body.strip() for heading, body in zip(pieces[1::2], pieces[2::2], strict=True)}


def fill_in(text: str, runs: Runs, findings: Iterable[Finding]) -> str:
    """The text with every field replaced; an unknown or ambiguous one is an error that names it."""
    value_of = _values(runs, findings)

    def replacement(match: re.Match[str]) -> str:
        # Within a table of Markdown, the bars of a field are escaped.
        return value_of(match[0], [part.strip() for part in match[1].replace("\\|", "|").split("|")])

    return _FIELD.sub(replacement, text)


def _values(runs: Runs, findings: Iterable[Finding]) -> Callable[[str, list[str]], str]:
    """A function that gives the value of a field, from the field, for errors, and its words."""
    by_id = {finding.claim.id: finding for finding in findings}
    quantities = named_quantities(runs, by_id.values())

    @cache
    def values_on(border: str) -> Callable[[str, list[str]], str] | None:
        """The same for a set of the border study. Its claims are checked once for all fields."""
        its_runs = border_runs(runs).get(border)
        return None if its_runs is None else _values(its_runs, border_findings(its_runs).values())

    def value_of(field: str, parts: list[str]) -> str:
        name, *words = parts
        if name == "mean":
            return mean_of(runs, *words)
        if name == "border":
            border, *inner = words
            if border not in BORDERS or not inner:
                raise PaperError(f"{field} names no border and no number: borders are {', '.join(BORDERS)}.")
            of_set = values_on(border)
            return NOT_MEASURED if of_set is None else of_set(field, inner)
        if name in quantities and not words:
            return quantities[name]
        if name not in by_id:
            raise PaperError(f"{field} names no claim and no quantity; these are {', '.join(quantities)}.")
        return _measured(field, by_id[name], words) if words else by_id[name].verdict.value

    return value_of


def _measured(field: str, finding: Finding, words: list[str]) -> str:
    if not finding.measurements:
        return NOT_MEASURED
    shown = words.pop() if words[-1] in ("bounds", "size") else "value"
    found = {each.what: each for each in finding.measurements if all(word in each.what for word in words)}
    if len(found) != 1:
        names = "; ".join(each.what for each in finding.measurements)
        raise PaperError(f"{field} fits {len(found)} measurements, but it must fit one of: {names}.")
    (measurement,) = found.values()
    text: str = getattr(measurement, shown)
    return text
