"""A Python file of the user's, read anew each time."""

from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import spec_from_file_location
from pathlib import Path


class _Anew(SourceFileLoader):
    """Bytecode is found by a file's size and second, which an edit may leave alone."""

    def get_code(self, fullname: str):
        """The code of the file as it stands; none is kept."""
        return self.source_to_code(self.get_data(self.path), self.path)


def spec_of(name: str, path: Path) -> ModuleSpec:
    """How the file becomes a module of this name, without a `__pycache__` beside it."""
    spec = spec_from_file_location(name, path, loader=_Anew(name, str(path)))
    assert spec is not None
    return spec
