"""Forms that magicgui builds from settings classes, as real widgets."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import pytest

from napari_spt.parts.forms import AUTOMATIC, settings_form
from spt_core.hints import Hint, settings_of
from spt_core.learning.settings import TrainSettings
from spt_core.learning.views import ViewSettings
from spt_core.patches.settings import EncodeSettings
from spt_core.patches.training.augmentation_settings import Augmentation
from spt_core.patches.training.settings import PatchTrainSettings


@dataclass(frozen=True)
class Made:
    whole: Annotated[int, Hint("whole numbers", minimum=-2, maximum=5)] = 3
    share: Annotated[float, Hint("a share", above=0, below=1, digits=3)] = 0.25
    size: Annotated[
        int | None, Hint("a size", above=0, unit="px", automatic="the encoder's own")
    ] = None
    offset: Annotated[float | None, Hint("an offset", minimum=0)] = None
    stain: Annotated[
        str, Hint("a stain", choices=("none", "macenko"), choice_labels=("None", "M"))
    ] = "none"
    mode: Annotated[str | None, Hint("a mode", choices=("a", "b"))] = None
    span: Annotated[tuple[float, float], Hint("a span", above=0, is_range=True)] = (
        1,
        2,
    )
    redo: Annotated[bool, Hint("do it again", label="Do again")] = False
    name: Annotated[str | None, Hint("a name")] = None
    file: Annotated[Path | None, Hint("a file")] = None


@pytest.fixture
def form(qtbot):
    form = settings_form(Made)
    qtbot.addWidget(form.native)
    return form


def test_defaults_go_in_and_come_out(form):
    assert form.settings() == Made()
    assert isinstance(form["whole"].value, int)


def test_values_make_the_round_trip(form):
    wanted = Made(
        whole=-2,
        share=0.125,
        size=300,
        offset=0.0,
        stain="macenko",
        mode="b",
        span=(0.5, 4.25),
        redo=True,
        name="own",
        file=Path("weights.pth").absolute(),
    )
    form.value = vars(wanted)
    assert form.settings() == wanted
    form.value = vars(Made())
    assert form.settings() == Made()


def test_values_to_begin_with(qtbot):
    form = settings_form(Made, "size", "stain", values={"size": 7})
    qtbot.addWidget(form.native)
    assert form.value == {"size": 7, "stain": "none"}
    assert form.settings(whole=1) == Made(whole=1, size=7)


def test_ranges_hold(form):
    box = form["whole"].native
    box.setValue(99)
    assert form["whole"].value == 5
    box.setValue(-99)
    assert form["whole"].value == -2
    share = form["share"].native
    share.setValue(5.0)
    assert form["share"].value == 0.999
    share.setValue(-5.0)
    assert form["share"].value == 0.001
    for box in form["span"]:
        box.native.setValue(-1)
    assert form["span"].value == (0.01, 0.01)


def test_none_is_shown_as_automatic(form):
    size = form["size"]
    assert size.native.text() == AUTOMATIC
    size.native.stepUp()
    assert (size.value, size.native.text()) == (1, "1 px")
    size.native.stepDown()
    assert size.value is None
    assert form["offset"].native.text() == AUTOMATIC
    form["offset"].value = 0.0  # the least there is, and still a number
    assert form["offset"].value == 0.0
    assert form["mode"].native.currentText() == AUTOMATIC
    assert form["mode"].native.count() == 3
    assert form["name"].native.placeholderText() == AUTOMATIC


def test_typing_is_heard(form, qtbot):
    heard = []
    form.changed.connect(lambda: heard.append(form.value["size"]))
    size = form["size"].native
    size.selectAll()
    qtbot.keyClicks(size, "128")
    assert heard[-1] == 128
    size.setValue(size.minimum())
    assert heard[-1] is None
    seen = []
    form["mode"].changed.connect(seen.append)
    form["mode"].native.setCurrentIndex(1)
    form["mode"].native.setCurrentIndex(0)
    assert seen == ["a", None]


def test_words_come_from_the_hints(form):
    size = form["size"].native
    assert size.accessibleName() == "Size"
    assert size.toolTip() == f"A size. {AUTOMATIC}: the encoder's own"
    assert form["redo"].native.text() == "Do again"
    assert form["redo"].native.accessibleName() == "Do again"
    stain = form["stain"].native
    assert [stain.itemText(row) for row in range(stain.count())] == ["None", "M"]


def test_choices_that_are_known_only_now(qtbot):
    devices = [("Automatic (CPU)", "auto"), ("NVIDIA A100", "cuda:0")]
    form = settings_form(EncodeSettings, "device", choices={"device": devices})
    qtbot.addWidget(form.native)
    assert form.value == {"device": "auto"}
    form["device"].native.setCurrentIndex(1)
    assert form.value == {"device": "cuda:0"}


@pytest.mark.parametrize(
    ("cls", "others"),
    [
        (EncodeSettings, {}),
        (ViewSettings, {}),
        (Augmentation, {}),
        (TrainSettings, {"features": "f", "out": "o"}),
        (PatchTrainSettings, {"sources": ("s",), "out": "o"}),
    ],
)
def test_every_settings_class_has_a_form(cls, others, qtbot):
    form = settings_form(cls)
    qtbot.addWidget(form.native)
    form.native.show()
    assert set(form.value) == set(settings_of(cls))
    required = {
        name: form.value[name]
        for name, setting in settings_of(cls).items()
        if name in ("objective", "method")
    }
    assert form.settings(**others) == cls(**others, **required)
    for name in form.value:
        assert form[name].native.accessibleName()
        assert form[name].tooltip
