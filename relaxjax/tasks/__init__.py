"""Real data and small models to train on; needs the extra `cli`."""

from relaxjax.tasks._arrays import of_arrays
from relaxjax.tasks._chars import chars
from relaxjax.tasks._digits import digits
from relaxjax.tasks._load import TASKS, load
from relaxjax.tasks._own_file import spec_of as spec_of
from relaxjax.tasks._task import (
    OPTIMIZERS,
    Data,
    Optimizer,
    Task,
    adamw,
    optimizer_of,
    schedule,
    task_of,
    train_step_of,
)

__all__ = [
    "OPTIMIZERS",
    "TASKS",
    "Data",
    "Optimizer",
    "Task",
    "adamw",
    "chars",
    "digits",
    "load",
    "of_arrays",
    "optimizer_of",
    "schedule",
    "task_of",
    "train_step_of",
]
