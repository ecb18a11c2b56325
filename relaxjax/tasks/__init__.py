"""Real data and small models to train on; needs the extra `cli`."""

from relaxjax._core._lazy import door

__getattr__, __dir__, __all__ = door(
    __name__,
    {
        "_arrays": "of_arrays",
        "_chars": "chars",
        "_digits": "digits",
        "_load": "TASKS load",
        "_task": (
            "OPTIMIZERS Data Optimizer Task adamw optimizer_of schedule task_of "
            "train_step_of"
        ),
    },
    shared={"_load": "outline", "_own_file": "spec_of", "_task": "next_batch"},
)
