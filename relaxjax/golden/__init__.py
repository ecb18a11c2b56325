"""Golden vectors of relaxations, and a runner that tries implementations on them."""

from relaxjax._core._lazy import door

__getattr__, __dir__, __all__ = door(
    __name__,
    {
        "_relaxjax": "implementation",
        "_vectors": "FORMAT Outcome Vector compare load",
    },
)
