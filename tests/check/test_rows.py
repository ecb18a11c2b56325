"""The three skeletons in the library: a file and a row for each."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import relaxjax
from relaxjax.check.skeletons import compressor, relaxation, topology

ROOT = Path(__file__).parents[2]
PACKAGE = Path(relaxjax.__file__).parent
WRITE = """
import json, sys
from pathlib import Path
from scripts.names import names
Path(sys.argv[1]).write_text(json.dumps(names()))
"""
"""As scripts/names.py does, of the package that is imported."""
ASK = """
import json
from scripts.tables import compressors, topologies
from relaxjax import emulate, wire_bytes
from relaxjax._core._relaxation import Training
from relaxjax._names import parse
from relaxjax.cli import _train
from relaxjax.plan import Model, Network, rank
from relaxjax.tasks import OPTIMIZERS, TASKS
from tests.test_relaxation_names import SPELLINGS
training = Training(OPTIMIZERS["adamw"].make(0.1), 0.1, 9, 8)
params = TASKS["digits"](0).params
ranking = rank(
    Model(params=params, compute=0.1), Network(workers=8), quality="unmeasured"
)
names = ["all_reduce+ternary+ef14@two_shot", "gossip@two_hops", "signs"]
print(json.dumps({
    "bytes": [
        wire_bytes(parse(n).build("data", training), params, emulate(8)) for n in names
    ],
    "help": _train.SETTINGS["help"],
    "docs": compressors.table() + topologies.table(),
    "contract": SPELLINGS,
    "plan": {row.label: row.prediction.nbytes for row in ranking.rows},
}))
"""


ROW = """Relaxation(
        name="signs",
        summary="signs with feedback",
        build=before(signs),
    )"""


def with_row(room: Path, table: str, file: str, name: str, row: str) -> None:
    """Adds an import and a row at the end of a table of a room."""
    path = room / "_rows.py"
    text = path.read_text()
    head, start, body = text.partition(f"\n{table}")
    assert start, table
    close = "\n]" if body.startswith(" = [") else "\n}"
    rows, end, rest = body.partition(close)
    before, first, imports = head.partition("\nfrom relaxjax")
    head = f"{before}\nfrom relaxjax.{room.name}.{file} import {name}{first}{imports}"
    path.write_text(head + start + rows + f"\n    {row}," + end + rest)


@pytest.mark.slow
def test_a_file_and_a_row_show_in_names_help_docs_plan_and_contract_tests(tmp_path):
    copy = tmp_path / "relaxjax"
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    compression, graphs = copy / "compression", copy / "topology"
    shutil.copy(compressor.__file__, compression / "_ternary.py")
    shutil.copy(topology.__file__, graphs / "_two_hops.py")
    shutil.copy(relaxation.__file__, copy / "gradients" / "_signs.py")
    with_row(compression, "COMPRESSORS", "_ternary", "ternary", '"ternary": ternary')
    with_row(graphs, "TOPOLOGIES", "_two_hops", "two_hops", '"two_hops": two_hops')
    with_row(copy / "gradients", "ROWS", "_signs", "signs", ROW)
    paths = f"{tmp_path}{os.pathsep}{ROOT}"
    for asked in ([WRITE, str(copy / "cli" / "names.json")], [ASK]):
        result = subprocess.run(
            [sys.executable, "-P", "-c", *asked],
            cwd=ROOT,
            env=os.environ | {"JAX_PLATFORMS": "cpu", "PYTHONPATH": paths},
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert result.returncode == 0, result.stderr
    answer = json.loads(result.stdout)
    # Of the digits' 26122 params, three matrices are in codes and vectors are not.
    chunk, vectors = 25856 // 8, 4 * (16 + 16 + 2)
    sent = [
        14 * (chunk // 4 + 4) + 14 * vectors,
        4 * 26122,
        7 * (25856 // 8 + 34 + 6 * 4),
    ]
    assert answer["bytes"] == sent
    assert "ternary" in answer["help"]
    assert "two_hops" in answer["help"]
    assert "signs with feedback" in " ".join(answer["help"].split())
    docs = "\n".join(answer["docs"])
    assert "| `ternary` | B(0.000244) | 1028 |" in docs
    assert "| `two_hops` | 1 | 2 | 0.347 |" in docs
    assert {"all_reduce+ternary", "gossip@two_hops", "signs"} <= set(answer["contract"])
    ranked = ("all_reduce+ternary+ef14@two_shot", "gossip@two_hops", "signs")
    assert [answer["plan"][label] for label in ranked] == sent
