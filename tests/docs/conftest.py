"""The documentation's extensions are modules beside each other, as Sphinx has it."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "docs" / "_ext"))
