"""A study that is finished leads on, from the Train dock to the analysis dock."""

from napari_spt.analysis.desk import desk_of
from napari_spt.parts.settings import remember
from tests.plugin.test_result_panel import study  # noqa: F401
from tests.plugin.test_training_dock import open_train  # noqa: F401


def test_the_result_is_shown_and_its_model_used(open_train, engine, study, qtbot):  # noqa: F811
    remember("asked_default_reader", True)
    viewer, dock = open_train(show=True)
    dock.open_study(str(study.path))
    qtbot.waitUntil(lambda: dock.result.report is not None, timeout=30_000)
    dock.tabs.buttons["Result"].click()
    assert dock.result.use_model.isVisible()
    assert "Better than averaging patches" in dock.result.headline.text()
    # Views: the parameters that were moved are those that are drawn.
    dock.views.advanced.open()
    dock.views.advanced.forms["views"]["split_ratio"].value = 0.6
    assert dock.views.panel.settings_source().split_ratio == 0.6
    dock.views.panel.crop_accepted.emit(20.0, 90.0)
    assert dock.draft.settings().views.crop_area == (20.0, 90.0)
    dock.result.use_model.click()
    qtbot.waitUntil(lambda: desk_of(viewer).dock is not None, timeout=30_000)
    analysis = desk_of(viewer).dock
    assert analysis.state.model == study.model
    viewer.window.remove_dock_widget(analysis)
