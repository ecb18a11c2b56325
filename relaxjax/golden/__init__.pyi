# Written by scripts/stubs.py from the table in __init__.py.

from relaxjax.golden._relaxjax import implementation as implementation
from relaxjax.golden._vectors import FORMAT as FORMAT
from relaxjax.golden._vectors import Outcome as Outcome
from relaxjax.golden._vectors import Vector as Vector
from relaxjax.golden._vectors import compare as compare
from relaxjax.golden._vectors import load as load

__all__ = ["FORMAT", "Outcome", "Vector", "compare", "implementation", "load"]
