# Written by scripts/stubs.py from the table in __init__.py.

from relaxjax.plan._auto import auto as auto
from relaxjax.plan._auto import transformation as transformation
from relaxjax.plan._auto import verify as verify
from relaxjax.plan._by_name import predicted as predicted
from relaxjax.plan._chart import choices as choices
from relaxjax.plan._chart import winners as winners
from relaxjax.plan._measure import Fit as Fit
from relaxjax.plan._measure import Measurement as Measurement
from relaxjax.plan._measure import measure as measure
from relaxjax.plan._measure import step_seconds as step_seconds
from relaxjax.plan._model import Model as Model
from relaxjax.plan._network import Network as Network
from relaxjax.plan._network import codecs as codecs
from relaxjax.plan._predict import Prediction as Prediction
from relaxjax.plan._quality import Quality as Quality
from relaxjax.plan._quality import quality_of as quality_of
from relaxjax.plan._rank import rank as rank
from relaxjax.plan._ranking import Ranking as Ranking
from relaxjax.plan._ranking import Row as Row
from relaxjax.plan._sharded import sharded as sharded
from relaxjax.plan._xla_flags import xla_flags as xla_flags
from relaxjax.plan.inside._split import Leg as Leg
from relaxjax.plan.inside._split import Split as Split
from relaxjax.plan.inside._split import split as split
from relaxjax.plan.running._arrears import with_arrears as with_arrears
from relaxjax.plan.running._autopilot import autopilot as autopilot
from relaxjax.plan.running._taken_over import taken_over as taken_over

__all__ = [
    "Fit",
    "Leg",
    "Measurement",
    "Model",
    "Network",
    "Prediction",
    "Quality",
    "Ranking",
    "Row",
    "Split",
    "auto",
    "autopilot",
    "choices",
    "measure",
    "quality_of",
    "rank",
    "sharded",
    "split",
    "step_seconds",
    "taken_over",
    "transformation",
    "verify",
    "winners",
    "with_arrears",
    "xla_flags",
]
