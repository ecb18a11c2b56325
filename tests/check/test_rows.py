"""A compressor and a topology from their skeletons, in the library by a row each."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import relaxjax
from relaxjax.check.skeletons import compressor, topology

ROOT = Path(__file__).parents[2]
PACKAGE = Path(relaxjax.__file__).parent
ASK = """
import json, sys
sys.path.append("docs/_ext")
import compressor_table, topology_table
from relaxjax import emulate, wire_bytes
from relaxjax._core._relaxation import Training
from relaxjax._relaxations import parse
from relaxjax.cli import _train
from relaxjax.plan import Network
from relaxjax.plan._candidates import candidates
from relaxjax.tasks import OPTIMIZERS, TASKS
from tests.test_relaxations import SPELLINGS
training = Training(OPTIMIZERS["adamw"].make(0.1), 0.1, 9, 8)
names = ["all_reduce+ternary+ef14@two_shot", "gossip@two_hops"]
print(json.dumps({
    "bytes": [
        wire_bytes(parse(n).build("data", training), TASKS["digits"](0).params,
            emulate(8)) for n in names
    ],
    "help": _train.help_text(),
    "docs": compressor_table.table() + topology_table.table(),
    "contract": SPELLINGS,
    "plan": [c.label for c in candidates(Network(workers=8))],
}))
"""


def with_row(path: Path, table: str, file: str, name: str) -> None:
    """Adds an import and a row at the end of a table."""
    text = path.read_text()
    head, start, body = text.partition(f"\n{table}: ")
    assert start, table
    rows, end, rest = body.partition("\n}")
    before, first, imports = head.partition("\nfrom relaxjax ")
    head = f"{before}\nfrom relaxjax.{file} import {name}{first}{imports}"
    row = f'\n    "{name}": {name},'
    path.write_text(head + start + rows + row + end + rest)


def test_a_file_and_a_row_show_in_names_help_docs_plan_and_contract_tests(tmp_path):
    copy = tmp_path / "relaxjax"
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(compressor.__file__, copy / "_ternary.py")
    shutil.copy(topology.__file__, copy / "_two_hops.py")
    with_row(copy / "_rows.py", "COMPRESSORS", "_ternary", "ternary")
    with_row(copy / "_gossip_rows.py", "TOPOLOGIES", "_two_hops", "two_hops")
    paths = f"{tmp_path}{os.pathsep}{ROOT}"
    result = subprocess.run(
        [sys.executable, "-P", "-c", ASK],
        cwd=ROOT,
        env=os.environ | {"JAX_PLATFORMS": "cpu", "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert result.returncode == 0, result.stderr
    found = json.loads(result.stdout)
    # Of the digits' 26122 params, three matrices are in codes and vectors are not.
    chunk, vectors = 25856 // 8, 4 * (16 + 16 + 2)
    assert found["bytes"] == [14 * (chunk // 4 + 4) + 14 * vectors, 4 * 26122]
    assert "ternary" in found["help"]
    assert "two_hops" in found["help"]
    docs = "\n".join(found["docs"])
    assert "| `ternary` | B(0.000244) | 1028 |" in docs
    assert "| `two_hops` | 1 | 2 | 0.347 |" in docs
    assert {"all_reduce+ternary", "gossip@two_hops"} <= set(found["contract"])
    ranked = {"all_reduce+ternary+ef14@two_shot", "gossip@two_hops"}
    assert ranked <= set(found["plan"])
