"""The laws of one's own compressor, topology or relaxation, held on hard inputs.

Each function returns a `Verdict` for each law; `relaxjax check FILE.py` holds whatever
a file defines to all of them, and adds bytes, codec time and a place on a plot.
"""

from relaxjax._core._lazy import door

__getattr__, __dir__, __all__ = door(
    __name__,
    {
        "_compressor": "compressor_laws",
        "_feedback": "feedback_laws",
        "_relaxation": "relaxation_laws",
        "_topology": "topology_laws",
        "_verdict": "Counterexample Verdict",
    },
    shared={
        "_page": "MARKS codec_line page plot quality_rows shown",
        "_report": "Effort report_of",
        "_subjects": "subjects_of",
    },
)
