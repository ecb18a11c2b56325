# Written by scripts/stubs.py from the table in __init__.py.

from relaxjax.tasks._arrays import of_arrays as of_arrays
from relaxjax.tasks._chars import chars as chars
from relaxjax.tasks._digits import digits as digits
from relaxjax.tasks._load import TASKS as TASKS
from relaxjax.tasks._load import load as load
from relaxjax.tasks._load import outline as outline
from relaxjax.tasks._own_file import spec_of as spec_of
from relaxjax.tasks._task import OPTIMIZERS as OPTIMIZERS
from relaxjax.tasks._task import Data as Data
from relaxjax.tasks._task import Optimizer as Optimizer
from relaxjax.tasks._task import Task as Task
from relaxjax.tasks._task import adamw as adamw
from relaxjax.tasks._task import next_batch as next_batch
from relaxjax.tasks._task import optimizer_of as optimizer_of
from relaxjax.tasks._task import schedule as schedule
from relaxjax.tasks._task import task_of as task_of
from relaxjax.tasks._task import train_step_of as train_step_of

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
