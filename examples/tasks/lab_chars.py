"""The built-in text for the model of the network lab: four blocks, 3,241,600 params.

relaxjax compare examples/tasks/lab_chars.py --relaxation all_reduce \
    --relaxation 'power_sgd rank=8 bits=8' --workers 4 --steps 600
"""

import dataclasses

from relaxjax.tasks import Task, chars


def task(seed: int) -> Task:
    """The task of a seed, which decides the model's start."""
    wide = chars(seed, width=256, layers=4)
    return dataclasses.replace(wide, learning_rate=3e-3)  # 1e-2 suits narrow models
