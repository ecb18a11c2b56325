"""Everything that needs a GPU, in one command; half an hour, no network.

python scripts/on_gpu.py              all parts, the most valuable first
python scripts/on_gpu.py --part text  one of them; each takes nine minutes or less
python scripts/on_gpu.py --tiny       on whatever is there, to see that it runs

Each part writes a file of rows under docs/gpu, row after row, and does not measure
again what is there from the same device and versions.
"""

import argparse
import sys
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
MINUTES = 9.0


def main(arguments: list[str] | None = None) -> int:
    """Says what is there, and runs the parts that were asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--tiny", action="store_true", help="small sizes, any device")
    parser.add_argument("--part", action="append", help="one of the parts; repeatable")
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "gpu")
    asked = parser.parse_args(arguments)
    if reason := missing(tiny=asked.tiny):
        print(reason, file=sys.stderr)
        return 2
    from benchmarks.gpu.record import Record, conditions

    print(conditions(), flush=True)
    for name, rows in parts().items():
        if asked.part and name not in asked.part:
            continue
        print(name, flush=True)
        rows(Record(asked.out / f"{name}.json", MINUTES, tiny=asked.tiny))
    return 0


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


def parts() -> dict:
    """From the name of a part to the function that measures its rows."""
    from benchmarks.gpu import facts, host_orders, steps, text

    return {
        "facts": facts.facts,
        "codecs": steps.codecs,
        "transformations": steps.transformations,
        "host_orders": host_orders.host_orders,
        "emulated": steps.emulated,
        "text": text.text,
    }


if __name__ == "__main__":
    sys.exit(main())
