"""Which relaxation pays on this model and this network: predict, rank, choose."""

from relaxjax.plan._auto import auto, transformation, verify
from relaxjax.plan._chart import choices, winners
from relaxjax.plan._measure import Fit, Measurement, measure, step_seconds
from relaxjax.plan._model import Model
from relaxjax.plan._network import Network
from relaxjax.plan._predict import Prediction
from relaxjax.plan._quality import Quality, quality_of
from relaxjax.plan._rank import Ranking, Row, rank

__all__ = [
    "Fit",
    "Measurement",
    "Model",
    "Network",
    "Prediction",
    "Quality",
    "Ranking",
    "Row",
    "auto",
    "choices",
    "measure",
    "quality_of",
    "rank",
    "step_seconds",
    "transformation",
    "verify",
    "winners",
]
