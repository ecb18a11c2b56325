"""When workers meet: periods that change while training, as functions of the step."""

from relaxjax._core._lazy import door

__getattr__, __dir__, __all__ = door(
    __name__,
    {
        "_calendar": "Meetings Period Schedule",
        "_lasting": "lasting",
        "_meetings": "meetings",
        "_qsr": "qsr",
        "_table": "post_local stages table",
    },
    shared={
        "_calendar": "Calendar calendar is_scheduled shifted",
        "_laps": "laps",
        "_rounds": "COUNTER Rounds rounds",
        "_spelled": "EXAMPLE spelled",
        "_together": "Together together",
    },
)
