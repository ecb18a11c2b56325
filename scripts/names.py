"""Writes relaxjax/cli/names.json: the names that help, Tab and a mistyped name need.

python scripts/names.py
"""

import json
from pathlib import Path
from typing import Any

PATH = Path(__file__).resolve().parents[1] / "relaxjax" / "cli" / "names.json"


def names() -> dict[str, Any]:
    """The names of the package's tables."""
    from relaxjax._names import RELAXATIONS
    from relaxjax.compression import COMPRESSORS, FEEDBACKS
    from relaxjax.topology import TOPOLOGIES

    return {
        "relaxations": {
            name: [row.summary, list(row.algorithms), row.compressors]
            for name, row in RELAXATIONS.items()
        },
        "compressors": list(COMPRESSORS),
        "feedbacks": list(FEEDBACKS),
        "topologies": list(TOPOLOGIES),
    }


if __name__ == "__main__":
    PATH.write_text(json.dumps(names(), indent=1) + "\n")
