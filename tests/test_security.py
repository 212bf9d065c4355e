"""SECURITY.md names everything that is parsed from outside."""

import re
from pathlib import Path

import pytest

import predbn

PACKAGE = Path(predbn.__file__).parent
SECURITY = (Path(__file__).parents[1] / "SECURITY.md").read_text(encoding="utf-8")
PARSERS = {
    "numpy.load": r"\bnp\.(load|fromfile)\(",
    "torch.load": r"(?<!`)\btorch\.load\(",
    "safetensors": r"\bsafe_open\(|from safetensors\S* import .*\bload",
    "onnx.ModelProto.FromString": r"\bFromString\(|\bonnx\.load\(|\bir\.load\(",
    "PIL.Image.open": r"\bImage\.open\(",
    "pickle.Unpickler": r"\bpickle\.(Unpickler|loads?)\b",
    "gzip.open": r"\bgzip\.open\(",
    "tarfile.open": r"\btarfile\.open\(",
    "pyarrow.csv.read_csv": r"\bread_csv\(",
    "pyarrow.parquet.read_table": r"\bpq\.read_table\(|\bread_parquet\(|ParquetFile\(",
    "json.loads": r"\bjson\.loads?\(",
    "tomllib.loads": r"\btomllib\.loads?\(",
    "jinja2.sandbox.ImmutableSandboxedEnvironment": r"\bImmutableSandboxedEnvironment\(",
    "ast.literal_eval": r"\bliteral_eval\(",
    "urllib.request.urlopen": r"\burlopen\(",
}
"""How a call of each parser looks in the code."""


def table() -> dict[str, set[str]]:
    """The parsers of the table, and the folders that are named for each."""
    rows = re.findall(r"^\| [^|]+ \| `([\w.]+)` \| ([^|]+) \|", SECURITY, re.MULTILINE)
    return {parser: set(re.findall(r"`(\w+)/`", folders)) for parser, folders in rows}


def test_the_table_has_every_parser():
    assert set(table()) == set(PARSERS)


@pytest.mark.parametrize("parser", PARSERS)
def test_no_other_folder_uses_a_parser(parser):
    files = [path for path in PACKAGE.rglob("*.py") if re.search(PARSERS[parser], path.read_text(encoding="utf-8"))]
    assert {path.relative_to(PACKAGE).parts[0] for path in files} <= table()[parser]


def test_only_two_programs_are_started():
    callers = {path.name for path in PACKAGE.rglob("*.py") if "subprocess." in path.read_text(encoding="utf-8")}
    assert callers == {"environment.py", "cifar10_cache.py"}
