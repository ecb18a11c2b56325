"""Everything that needs a GPU, in one command; half an hour, no network.

python scripts/on_gpu.py              all parts, the most valuable first
python scripts/on_gpu.py --part text  one of them; each takes nine minutes or less
python scripts/on_gpu.py --tiny       on whatever is there, to see that it runs
python scripts/on_gpu.py --minutes 2  for a short loan; the rest is said, and resumed

Each part writes a file of rows under docs/gpu (of `--tiny`: runs/gpu), row after row,
and does not measure again what is there from the same device and versions.
"""

import argparse
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
MINUTES = 9.0
PARTS = {
    "facts": "facts",
    "codecs": "steps",
    "transformations": "steps",
    "bases": "bases",
    "host_orders": "host_orders",
    "emulated": "steps",
    "text": "text",
}
"""Modules of `benchmarks.gpu`, in which a function is named as the part."""


def main(arguments: list[str] | None = None) -> int:
    """Says what is there, and runs the parts that were asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--tiny", action="store_true", help="small sizes, any device")
    parser.add_argument("--part", action="append", choices=PARTS, help="repeatable")
    parser.add_argument("--row", action="append", help="only that row; repeatable")
    parser.add_argument("--minutes", type=float, default=MINUTES, help="of each part")
    parser.add_argument("--out", type=Path, help="folder of the files")
    asked = parser.parse_args(arguments)
    out = asked.out or ROOT / ("runs" if asked.tiny else "docs") / "gpu"
    if reason := missing(tiny=asked.tiny):
        print(reason, file=sys.stderr)
        return 2
    from benchmarks.gpu.record import Record, conditions

    print(conditions(), flush=True)
    failed = []
    for name in asked.part or PARTS:
        print(name, flush=True)
        rows = getattr(import_module(f"benchmarks.gpu.{PARTS[name]}"), name)
        record = Record(out, name, asked.minutes, tiny=asked.tiny, only=asked.row)
        rows(record)
        failed += record.failed
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


def missing(*, tiny: bool) -> str:
    """What this machine lacks, in a sentence; "" if nothing."""
    needed = ("jax", "optax", "flax", "scipy", "numpy")
    if lacking := [name for name in needed if find_spec(name) is None]:
        return (
            f"{', '.join(lacking)} missing: `pip install -e .[cli,bench] jax[cuda13]`"
        )
    import jax

    platform = jax.devices()[0].platform
    if platform != "gpu" and not tiny:
        return (
            f"JAX {jax.__version__} sees no GPU, but {jax.devices()}: install "
            "`jax[cuda13]`, or use --tiny to try the script here"
        )
    return ""


if __name__ == "__main__":
    sys.exit(main())
