"""The first slide is shown without looking for a cluster; a cluster is still used."""

import subprocess
import sys

import dask
import dask.base
import dask.threaded
import pytest

from napari_spt.slides import dask_scheduler
from napari_spt.slides.dask_scheduler import use_threads_by_default
from tests.made_slides import picture, write_tiff


@pytest.fixture
def unset(monkeypatch):
    """dask as it is before anybody chose a scheduler."""
    monkeypatch.delitem(sys.modules, "distributed", raising=False)
    with dask.config.set(scheduler=None):
        yield


def run(code, *arguments):
    subprocess.run([sys.executable, "-c", code, *arguments], check=True)


def test_seeing_a_first_slide_does_not_wait_for_a_cluster(tmp_path):
    path = tmp_path / "a.tif"
    write_tiff(path, picture(900, 700), levels=2)
    run(
        "import sys\n"
        "import numpy as np\n"
        "from napari_spt.slides.reader import get_reader\n"
        "pyramid = get_reader(sys.argv[1])(sys.argv[1])[0][0]\n"
        "assert np.asarray(pyramid[-1]).any()\n"
        "assert 'distributed' not in sys.modules\n",
        str(path),
    )


def test_dask_says_truly_whether_it_looks_for_a_cluster():
    run(
        "import sys\n"
        "import dask.array\n"
        "from napari_spt.slides.dask_scheduler import imports_distributed\n"
        "dask.array.ones(2).compute()\n"
        "assert imports_distributed() == ('distributed' in sys.modules)\n"
    )


def test_threads_are_set_where_nothing_else_is(unset):
    use_threads_by_default()
    assert dask.config.get("scheduler") is dask.threaded.get


def test_a_dask_that_does_not_look_is_left_alone(unset, monkeypatch):
    monkeypatch.setattr(dask.base, "get_scheduler", lambda **_: None)
    assert not dask_scheduler.imports_distributed()
    use_threads_by_default()
    assert dask.config.get("scheduler") is None


def test_a_scheduler_of_the_users_own_stays(unset):
    with dask.config.set(scheduler="synchronous"):
        use_threads_by_default()
        assert dask.config.get("scheduler") == "synchronous"


def test_a_loaded_cluster_stays(unset, monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", object())
    use_threads_by_default()
    assert dask.config.get("scheduler") is None
