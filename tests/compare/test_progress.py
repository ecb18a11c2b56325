"""A notebook shows which run of a study is under way; elsewhere nothing is shown."""

from types import SimpleNamespace
from typing import Any

import pytest

from relaxjax import compare
from relaxjax.compare.study import _progress


class Page:
    """IPython's module, whose display keeps what a cell shows."""

    def __init__(self, shell: Any):
        self.shown: list[str] = []
        self.cells = 0
        self.get_ipython = lambda: shell
        self.display = SimpleNamespace(display=self._display)

    def _display(self, line: dict[str, str], *, raw: bool, display_id: bool) -> Any:
        assert raw
        assert display_id
        self.cells += 1
        self.shown.append(line["text/plain"])
        return SimpleNamespace(update=lambda x, raw: self.shown.append(x["text/plain"]))


def test_a_notebook_shows_one_line(tmp_path, monkeypatch):
    page = Page(SimpleNamespace(kernel=object()))
    monkeypatch.setattr(_progress, "sys", SimpleNamespace(modules={"IPython": page}))
    study = compare.Study(
        "digits", ["all_reduce", "local_sgd"], seeds=1, tune=1, workers=2, steps=4
    )
    study.run(tmp_path)
    assert page.cells == 1
    assert page.shown == [
        "run 1 of 2: all_reduce, report",
        "run 2 of 2: local_sgd, report",
    ]
    study.run(tmp_path)  # all is there
    assert page.cells == 1


@pytest.mark.parametrize("module", [None, Page(None), Page(SimpleNamespace())])
def test_elsewhere_nothing_is_shown(module, monkeypatch):
    modules = {"IPython": module} if module else {}
    monkeypatch.setattr(_progress, "sys", SimpleNamespace(modules=modules))
    _progress.shown_here()(0, 1, "all_reduce")
    assert not module or module.cells == 0
