"""Real slides for the tests: those of the folder that SPT_TEST_SLIDES names.

Without it the folder is ``../shared/data``, beside the repository; where that is
missing, the tests that need real slides are skipped.
"""

import os
from pathlib import Path

import pytest

from spt_core.slides.folders import slides_in

_DEFAULT = Path(__file__).parents[2] / "shared" / "data"
_CHOSEN = os.environ.get("SPT_TEST_SLIDES")
FOLDER = Path(_CHOSEN).expanduser().resolve() if _CHOSEN else _DEFAULT
WEIGHTS = FOLDER.parent / "weights"


def folder_slides() -> list:
    """Every slide of the folder, as parameters of a test."""
    paths = list(slides_in(FOLDER)) if FOLDER.is_dir() else []
    if not paths and _CHOSEN:
        raise pytest.UsageError(f"SPT_TEST_SLIDES: there are no slides in {FOLDER}")
    if not paths:
        reason = f"there are no slides in {FOLDER}; SPT_TEST_SLIDES may name a folder"
        return [pytest.param(None, marks=pytest.mark.skip(reason=reason), id="none")]
    return [
        pytest.param(path, id=path.relative_to(FOLDER).as_posix()) for path in paths
    ]


def needs(path: Path) -> pytest.MarkDecorator:
    """A mark: skip unless the folder holds this very file, which a test knows well."""
    return pytest.mark.skipif(not path.exists(), reason=f"{path} is not there")
