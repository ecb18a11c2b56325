"""`scripts/check.py --file`: which tests are those of a file."""

import pytest

import relaxjax
from scripts import check

ROOT = check.ROOT


@pytest.mark.parametrize(
    ("file", "tests"),
    [
        ("relaxjax/_core/_extremes.py", "tests/core/test_extremes.py"),
        ("relaxjax/gradients/momenta/_dion.py", "tests/gradients/momenta/test_dion.py"),
        ("relaxjax/plan/_predict.py", "tests/plan/test_predict.py"),
        ("relaxjax/gradients/mean/_packing.py", "tests/gradients/mean"),
    ],
)
def test_a_files_tests_mirror_it_or_stand_in_the_table(file, tests):
    assert check.tests_of(file) == [file, tests]


def test_every_file_has_tests_that_exist():
    files = (ROOT / "relaxjax").rglob("_*.py")
    inside = [str(path.relative_to(ROOT)) for path in files]
    outside = {"__init__", "__main__", "_names"}
    for file in inside:
        parts = file.split("/")
        if (
            len(parts) > 2
            and "skeletons" not in parts
            and parts[-1][:-3] not in outside
        ):
            for tests in check.tests_of(file):
                assert (ROOT / tests).exists(), file
    assert relaxjax.__file__.startswith(str(ROOT))
