"""`relaxjax train`: the main job, real data from the first step to the plot."""

from relaxjax.cli._app import COMMANDS
from relaxjax.cli.common._errors import endings, user_errors
from relaxjax.cli.common._known import lists, require_name
from relaxjax.cli.common._stdout import stdout_alone
from relaxjax.cli.common._takes import takes
from relaxjax.cli.options._train import TrainOptions

SETTINGS = {"help": COMMANDS["train"] + lists()}


@takes(TrainOptions)
def train(options: TrainOptions) -> None:
    """Reads the options; `_prepare` and `_training` do the rest."""
    with user_errors():
        require_name(options.relaxation)
    # JAX, flax, scikit-learn and matplotlib
    from relaxjax.cli.training import _prepare, _training

    with stdout_alone(wanted=options.as_json):
        with user_errors():
            job = _prepare.prepare(options)
        with endings():
            _training.run(job)
