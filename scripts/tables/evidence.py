"""How much worse relaxations train at the all-reduce's rate, as a plan knows it."""

from relaxjax.plan._quality import measurements
from scripts.tables.rows import heads, row

LOSSY = {
    "all_reduce+quantize8": "8 bits",
    "all_reduce+quantize4+ef14": "4 bits with feedback",
    "power_sgd rank=8": "`power_sgd`, rank 8",
    "power_sgd@two_shot rank=8 bits=8": "the same in 8 bits",
    "power_sgd rank=4": "`power_sgd`, rank 4",
    "power_sgd@two_shot rank=4 bits=8": "the same in 8 bits",
    "power_sgd rank=2": "`power_sgd`, rank 2",
    "power_sgd@two_shot rank=2 bits=8": "the same in 8 bits",
    "gossip": "`gossip`",
    "local_sgd": "`local_sgd`, every 8 steps",
    "local_sgd@two_shot rank=16 bits=8 sync_every=4": "`local_sgd` by PowerSGD, "
    "rank 16, every 4",
    "local_sgd@two_shot rank=32 bits=8": "`local_sgd` by PowerSGD, rank 32, every 8",
    "local_sgd@two_shot rank=8 bits=8": "`local_sgd` by PowerSGD, rank 8, every 8",
    "diloco": "`diloco`, every 8 steps",
    "delay": "`delay`",
    "all_reduce+sign+ef14": "signs with feedback",
    "all_reduce+sign+ef14 plain=0.5": "signs, half uncoded",
    "all_reduce+top_k+ef14": "top-k of 1 % with feedback",
}
"""Labels, and how they are shown."""


def lossy() -> list[str]:
    """Percent on both tasks, of some that lose."""
    lines = heads("at the all-reduce's learning rate", ["digits, %", "characters, %"])
    known = measurements()["rows"]
    for label, shown in LOSSY.items():
        lost = (100 * known[label][task]["worse"] + 0.0 for task in ("digits", "chars"))
        lines.append(row(shown, [f"{each:.1f}" for each in lost]))
    return lines
