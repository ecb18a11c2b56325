"""What codes cost a split model: the three examples, on characters, by seed.

    tensor      examples/coded_tensor_parallel.py
    experts     examples/mixture_of_experts.py
    pipeline    examples/coded_pipeline.py

Each trains as it is and with each of its codes, from the same seeds. Two losses, in
bits per character: the mean of the last 50 steps, with codes, and that of held-out text
after the last step, without codes. Bytes are those of `activations.sent_bytes`.
"""

import runpy
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from benchmarks.report import Result, Run, Runs, Table, benchmark

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
SPLITS = {
    "tensor": "coded_tensor_parallel",
    "experts": "mixture_of_experts",
    "pipeline": "coded_pipeline",
}
Steps = Annotated[
    int | None, typer.Option(min=1, help="Steps of a run; default: the example's own.")
]
Row = dict[str, Any]


@benchmark("split-quality", platform="cpu", devices=8)
def split_quality(run: Run, seeds: Runs = 3, steps: Steps = None) -> Result:
    """Split models with codes for their activations: bits a character, and bytes."""
    result: Result = {"conditions": run.conditions(), "rows": []}
    own = {} if steps is None else {"steps": steps}
    for split, example in SPLITS.items():
        trained = runpy.run_path(str(EXAMPLES / f"{example}.py"))
        rows: list[Row] = []
        for codes in trained["CODES"]:
            runs = [trained["main"](codes, seed=seed, **own) for seed in range(seeds)]
            rows.append(row_of(split, codes, runs, rows[0] if rows else None))
            run.save({**result, "rows": [*result["rows"], *rows]})
        result["rows"] += rows
    table = Table.of(
        "Codes inside a split model",
        result["rows"],
        *("split", "codes"),
        ("bits, training", lambda row: f"{np.mean(row['trained']):.3f}"),
        ("bits, held out", lambda row: f"{np.mean(row['held out']):.3f}"),
        *("over uncoded, %", "forward", "backward"),
    )
    return run.finish(result, tables=[table])


def row_of(split: str, codes: str, runs: list[Any], uncoded: Row | None) -> Row:
    """A row of the result; `runs` are what an example's `main` returns, by seed."""
    trained, held_out, sent = zip(*runs, strict=True)
    whole = held_out if uncoded is None else uncoded["held out"]
    over = 100 * (np.array(held_out) / np.array(whole) - 1)
    return {
        "split": split,
        "codes": codes,
        "trained": list(trained),
        "held out": list(held_out),
        "over uncoded, %": float(np.mean(over)),
        "over by seed, %": over.tolist(),
        "forward": sent[0].forward,
        "backward": sent[0].backward,
    }
