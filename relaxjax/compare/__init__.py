"""Many relaxations on one task: the same budget for all, one honest picture."""

from relaxjax._core._lazy import door

__getattr__, __dir__, __all__ = door(__name__, {})
