"""Which relaxation pays on this model and this network: predict, rank, choose."""

from relaxjax._core._lazy import door

__getattr__, __dir__, __all__ = door(
    __name__,
    {
        "_auto": "auto transformation verify",
        "_chart": "choices winners",
        "_measure": "Fit Measurement measure step_seconds",
        "_model": "Model",
        "_network": "Network",
        "_predict": "Prediction",
        "_quality": "Quality quality_of",
        "_rank": "rank",
        "_ranking": "Ranking Row",
        "_sharded": "sharded",
        "inside._split": "Leg Split split",
        "running._autopilot": "autopilot",
        "running._arrears": "with_arrears",
        "running._taken_over": "taken_over",
        "_xla_flags": "xla_flags",
    },
    shared={
        "_by_name": "predicted",
        "_network": "codecs",
    },
)
