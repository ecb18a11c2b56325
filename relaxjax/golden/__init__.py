"""Golden vectors of relaxations, and a runner that tries an implementation on them."""

from relaxjax.golden._compare import Outcome, compare
from relaxjax.golden._relaxjax import implementation
from relaxjax.golden._vectors import FORMAT, Vector, load

__all__ = ["FORMAT", "Outcome", "Vector", "compare", "implementation", "load"]
