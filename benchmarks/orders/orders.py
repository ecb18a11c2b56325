"""The benchmarks of orders: `python -m benchmarks.orders.orders quality`, and so on.

    quality      gaps of random, TIC, TAC and best orders to the optimum     (figure 1)
    speed        seconds to find an order                                    (figure 2)
    throughput   steps per second in simulation, and stragglers              (figure 3)
    scale        thousands of workers                                        (figure 4)

Each prints its conditions and a table, and saves JSON and a plot under runs/orders.
"""

import sys

from benchmarks.orders.quality import quality as quality
from benchmarks.orders.scale import scale as scale
from benchmarks.orders.speed import speed as speed
from benchmarks.orders.throughput import throughput as throughput

BENCHES = {
    "quality": quality,
    "speed": speed,
    "throughput": throughput,
    "scale": scale,
}


def main(arguments: list[str] | None = None) -> int:
    """Runs the benches that are named.

    Args:
        arguments: names of benches; by default those of the command line.

    Returns:
        The exit code: 2 for an unknown name.
    """
    names = sys.argv[1:] if arguments is None else arguments
    if not names or not set(names) <= set(BENCHES):
        print(f"usage: python -m benchmarks.orders.orders {' | '.join(BENCHES)}")
        return 2
    for name in names:
        BENCHES[name]()
    return 0


if __name__ == "__main__":
    sys.exit(main())
