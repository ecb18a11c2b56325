"""How the contributions of workers, of which some may be wrong, become one."""

from relaxjax._core._lazy import door

__getattr__, __dir__, __all__ = door(
    __name__,
    {
        "_by_rank": "median trimmed",
        "_centered_clip": "centered_clip",
        "_clipped": "clipped",
        "_geometric_median": "geometric_median",
        "_nearest": "nearest",
        "_rda": "rda",
        "_rule": "Rule",
        "_rules": "merged",
    },
    shared={
        "_presence": "presence squares_of",
        "_rule": "require_rule",
        "_rules": "factors_of looks_at merge_rows merge_shards of_length rule_of "
        "unless_all_broken",
        "_spelled": "spelled",
    },
)
