"""Choosing the channels that are seen, in the dock."""

from napari_spt.analysis.slide_analysis import Phase
from spt_core import read_tokens
from tests.made_channels import dye_slide
from tests.plugin.dock_tools import open_slide, wait_ended


def test_channels_are_chosen_of_slides_that_have_some(
    open_dock, sample, tmp_path, qtbot
):
    viewer, dock = open_dock(show=True)
    dye_slide(tmp_path / "dyes.zarr")
    viewer.open(str(tmp_path / "dyes.zarr"), plugin="napari-spt")
    dock.advanced.open()
    box = dock.advanced.encoding["channels"].native
    assert box.isVisible()
    assert "red, green and blue" in box.toolTip()
    dock.model.choose_none()
    qtbot.keyClicks(box, "Cy5,DAPI")
    dock.run.analyse.click()
    analysis = wait_ended(qtbot, dock)
    assert analysis.phase == Phase.DONE, analysis.failure
    assert read_tokens(analysis.features).facts.channels == "Cy5,DAPI"
    box.clear()
    qtbot.keyClicks(box, "CD3")
    dock.run.analyse.click()
    analysis = wait_ended(qtbot, dock)
    assert analysis.phase == Phase.FAILED
    assert "no channel 'CD3'" in analysis.failure.reason
    assert "1 DAPI, 2 FITC, 3 TRITC, 4 Cy5" in analysis.failure.reason
    # A picture in colour has none, and what is chosen is not asked of it.
    open_slide(viewer, sample)
    assert not box.isVisible()
    assert dock.state.channels is None
