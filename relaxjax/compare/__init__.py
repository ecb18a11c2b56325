"""Many relaxations on one task, tuned alike, and one report of them."""

from relaxjax._core._lazy import door

__getattr__, __dir__, __all__ = door(
    __name__,
    {
        "page._results": "Results",
        "study._study": "Study",
    },
    shared={"study._identity": "start task_digest"},
)
