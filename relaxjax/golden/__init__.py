"""Golden vectors of relaxations, and a runner that tries an implementation on them."""

from relaxjax._core._lazy import door

__getattr__, __dir__, __all__ = door(
    __name__,
    {
        "_compare": "Outcome compare",
        "_relaxjax": "implementation",
        "_vectors": "FORMAT Vector load",
    },
)
