"""How a run is shown while it goes: a bar on a terminal, plain lines elsewhere."""

from types import TracebackType

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
)


class Bar:
    """Progress of one run; a context manager, and a `Watch`."""

    def __init__(self, console: Console, title: str, *, steps: int, metric_name: str):
        self._console = console
        self._title = title
        self._metric_name = metric_name.replace("_", " ")
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[status]}"),
            console=console,
            disable=not console.is_terminal,
        )
        self._task = self._progress.add_task(title, total=steps, status="compiling")

    def __enter__(self) -> "Bar":
        self._progress.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._progress.stop()

    def step(self) -> None:
        """One more step is under way."""
        self._progress.advance(self._task)

    def point(self, step: int, loss: float, metric: float, speed: float) -> None:
        """The model has been evaluated."""
        status = (
            f"loss {loss:.4f}, {self._metric_name} {metric:.4f}, {speed:.1f} steps/s"
        )
        self._progress.update(self._task, status=status)
        if not self._console.is_terminal:
            self._console.print(f"{self._title}: step {step}, {status}", soft_wrap=True)
