"""How much worse relaxations train at the all-reduce's rate, as a plan knows it."""

from relaxjax.plan._quality import measurements
from scripts.tables.rows import heads, row

LOSSY = {
    "8 bits": "all_reduce+quantize8",
    "4 bits with feedback": "all_reduce+quantize4+ef14",
    "`power_sgd`, rank 8": "power_sgd rank=8",
    "the same in 8 bits": "power_sgd@two_shot rank=8 bits=8",
    "`power_sgd`, rank 4": "power_sgd rank=4",
    "the same in 8 bits ": "power_sgd@two_shot rank=4 bits=8",
    "`power_sgd`, rank 2": "power_sgd rank=2",
    "the same in 8 bits  ": "power_sgd@two_shot rank=2 bits=8",
    "`gossip`": "gossip",
    "`local_sgd`, every 8 steps": "local_sgd",
    "`local_sgd` by PowerSGD, rank 16, every 4": "local_sgd@two_shot rank=16 bits=8 "
    "sync_every=4",
    "`local_sgd` by PowerSGD, rank 32, every 8": "local_sgd@two_shot rank=32 bits=8",
    "`local_sgd` by PowerSGD, rank 8, every 8": "local_sgd@two_shot rank=8 bits=8",
    "`diloco`, every 8 steps": "diloco",
    "`delay`": "delay",
    "signs with feedback": "all_reduce+sign+ef14",
    "signs, half uncoded": "all_reduce+sign+ef14 plain=0.5",
    "top-k of 1 % with feedback": "all_reduce+top_k+ef14",
}


def lossy() -> list[str]:
    """Percent on both tasks, of some that lose."""
    lines = heads("at the all-reduce's learning rate", ["digits, %", "characters, %"])
    known = measurements()["rows"]
    for shown, label in LOSSY.items():
        lost = (100 * known[label][task]["worse"] + 0.0 for task in ("digits", "chars"))
        lines.append(row(shown.rstrip(), [f"{each:.1f}" for each in lost]))
    return lines
