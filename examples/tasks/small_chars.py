"""The built-in text for a smaller model: characters, a transformer of one block.

relaxjax compare examples/tasks/small_chars.py --relaxation all_reduce \
    --relaxation diloco+quantize4+ef14 --network 100mbit,30ms
"""

from relaxjax.tasks import Task, chars


def task(seed: int) -> Task:
    """The task of a seed, which decides the model's start."""
    return chars(seed, width=32, layers=1)
