"""The laws of one's own compressor, topology or relaxation, held on hard inputs.

Each function returns a `Verdict` for each law; `relaxjax check FILE.py` holds whatever
a file defines to all of them, and adds bytes, codec time and a place on a plot.
"""

from relaxjax.check._compressor import compressor_laws
from relaxjax.check._feedback import feedback_laws
from relaxjax.check._relaxation import relaxation_laws
from relaxjax.check._topology import topology_laws
from relaxjax.check._verdict import Counterexample, Verdict

__all__ = [
    "Counterexample",
    "Verdict",
    "compressor_laws",
    "feedback_laws",
    "relaxation_laws",
    "topology_laws",
]
