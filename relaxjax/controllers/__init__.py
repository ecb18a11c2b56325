"""Decisions while training, taken from readings by rules, and kept as data."""

from relaxjax._core._lazy import door

__getattr__, __dir__, __all__ = door(
    __name__,
    {
        "_accordion": "accordion",
        "_ada_comm": "ada_comm",
        "_allocation": "allocation rank_errors",
        "_conducted": "Conducted",
        "_conductor": "Conductor",
        "_continued": "continued",
        "_controller": "Controller controller",
        "_l_greco": "l_greco",
        "_noise_scale": "noise_scale",
        "_readings": "NormsOfSums agreement code_error leaf_norms norms_of_sums "
        "of_first_process",
        "_record": "Decision Record load table_of",
        "_thresholds": "thresholds",
    },
    shared={
        "_record": "Level",
        "_decidable": "refuse_controllers require_decidable require_sums",
        "_spelled": "DECIDED is_controller spelled_controller",
        "_tables": "without_tables",
    },
)
