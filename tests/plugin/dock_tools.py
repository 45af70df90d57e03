"""What the tests of the analysis dock share."""

import re
from pathlib import Path

import numpy as np
from qtpy.QtWidgets import (
    QAbstractButton,
    QAbstractSlider,
    QAbstractSpinBox,
    QComboBox,
    QLabel,
    QWidget,
)

from napari_spt.analysis.slide_analysis import Analysis
from napari_spt.slides.slide_source import slide_source
from spt_core.engine.codec import ArrayFolder, decode, encode
from spt_core.engine.protocol import (
    Analyse,
    Analysed,
    ClassesMapped,
    Predicted,
    Started,
)
from spt_core.insight.results import (
    ClassMap,
    Prediction,
    Remark,
    Verdict,
)
from spt_core.insight.tissue_map import PALETTE, Kinds, TissueMap
from spt_core.slides.tissue_mask import Tissue
from spt_core.tokens.tokens import TokenFacts

SLOW = 120_000
CONTROLS = (QAbstractButton, QAbstractSlider, QAbstractSpinBox, QComboBox)
NAMES = ("one kind", "another")
# Nobody has to know these outside Advanced.
JARGON = (
    "mpp", "token", "tokens", "encoder", "cls", "head", "heads", "embedding",
    "embeddings", "fold", "folds", "knn", "percentile", "percentiles", "faithfulness",
    "epoch", "epochs", "logit", "hyperparameter", "holm", "classifier", "pca", "t-sne",
)  # fmt: skip


def open_slide(viewer, path):
    (layer,) = viewer.open(str(path), plugin="napari-spt")
    return layer


def wait_ended(qtbot, dock, timeout=SLOW):
    """Wait until the analysis of the chosen slide has ended."""
    qtbot.waitUntil(
        lambda: dock.state.analysis is not None and not dock.state.analysis.is_open,
        timeout=timeout,
    )
    return dock.state.analysis


def map_of(dock, kind, analysis=None):
    """Our layer of a kind over a slide, or None."""
    return dock.renderer.overlay(analysis or dock.state.analysis).layers.find(kind)


def sent(reply, folder: Path):
    """A reply as it comes out of the pipe: what cannot be sent fails here."""
    arrays = ArrayFolder(folder)
    _, received = decode(encode(reply, 1, arrays.put), arrays.take)
    return received


def prediction(
    l0_xy=((0, 0),),
    step=(100, 100),
    *,
    attention=None,
    probabilities=(0.8, 0.2),
    verdict=Verdict.ANSWERED,
    total=None,
    classes=NAMES,
    calibrated=True,
    trained_on=False,
    remarks: tuple[Remark, ...] = (),
) -> Prediction:
    l0_xy = np.asarray(l0_xy, np.int64).reshape(-1, 2)
    n = len(l0_xy)
    if attention is None:
        attention = np.arange(1, n + 1)
    attention = np.atleast_2d(np.asarray(attention, np.float32))
    return Prediction(
        facts=TokenFacts(l0_patch_xy=step, l0_step_xy=step),
        p=l0_xy[:, ::-1] // np.asarray(step)[::-1],
        xy=l0_xy,
        classes=classes,
        probabilities=None if probabilities is None else np.array(probabilities),
        calibrated=calibrated,
        embedding=np.zeros(0, np.float32),
        attention=attention / attention.sum(),
        seen=n,
        total=n if total is None else total,
        verdict=verdict,
        trained_on=trained_on,
        remarks=remarks,
    )


def class_map(l0_xy, probabilities=None) -> ClassMap:
    l0_xy = np.asarray(l0_xy, np.int64)
    if probabilities is None:
        probabilities = np.eye(2)[np.arange(len(l0_xy)) % 2]
    return ClassMap(
        NAMES, l0_xy, np.asarray(probabilities, np.float32), True, 5, 1, 64, 9
    )


def tissue_map(l0_xy, *, odd=(1,), step=(100, 100)) -> TissueMap:
    l0_xy = np.asarray(l0_xy, np.int64)
    score = np.zeros(len(l0_xy))
    score[list(odd)] = 9.0
    kinds = Kinds(
        centres=np.array([[0, 0, 1], [5, 0, 0]], np.float32),
        spread=np.ones(2, np.float32),
        kind=np.arange(2),
        numbers=np.arange(2),
        names=("", ""),
        rgb=PALETTE[:2],
    )
    labels = np.arange(len(l0_xy)) % 2
    facts = TokenFacts(l0_patch_xy=step, l0_step_xy=step)
    return TissueMap(facts, l0_xy, labels, kinds, np.arange(2), score)


def started(patches, step, source=None, *, mask=None, l0_scale=(4.0, 4.0)) -> Started:
    mask = np.ones((2, 3), bool) if mask is None else mask
    return Started(
        patches=patches,
        done=0,
        l0_patch_xy=step,
        mpp_xy=None if source is None else source.mpp_xy,
        mpp_from_user=False,
        tissue=Tissue(mask, l0_scale),
        device="cpu",
        encoder="bundled",
    )


def begun(dock, layer) -> Analysis:
    """Let the dock show an analysis of a slide that has just begun."""
    source = slide_source(layer)
    model = dock.state.model
    asked = Analyse(source.path, source.name, Path("features"), model=model)
    analysis = Analysis(layer, source, asked, model_name=dock.state.model_name)
    dock.state.begin(analysis)
    return analysis


def known(dock, layer, l0_xy, step, folder, *, attention=None, classes=None):
    """Let the dock show an analysis that ended with the given patches."""
    analysis = begun(dock, layer)
    for reply in (
        started(len(l0_xy), step, analysis.slide),
        Predicted(prediction(l0_xy, step, attention=attention)),
        ClassesMapped(class_map(l0_xy, classes)),
        Analysed(folder / "kept.h5", reused=False, seconds=1.0),
    ):
        dock.state.apply(analysis, sent(reply, folder))
    return analysis


def words_of(widget: QWidget) -> list[str]:
    """Every word that a widget shows or tells."""
    found = []
    for one in [widget, *widget.findChildren(QWidget)]:
        found += [one.toolTip(), one.accessibleName(), one.statusTip()]
        if isinstance(one, QLabel | QAbstractButton):
            found.append(one.text())
        if isinstance(one, QComboBox):
            found += [one.itemText(i) for i in range(one.count())]
        if isinstance(one, QAbstractSpinBox):
            found.append(one.text())
    return [words for words in found if words]


def jargon_in(words: list[str]) -> set[tuple[str, str]]:
    """Words of the trade, each with the sentence that it stands in."""
    return {
        (jargon, one)
        for one in words
        for jargon in JARGON
        if re.search(rf"\b{jargon}\b", re.sub("<[^>]*>", " ", one).lower())
    }


def controls_of(widget: QWidget) -> list[QWidget]:
    """What can be operated, without the inner parts of controls."""
    found = []
    for one in widget.findChildren(QWidget):
        if not isinstance(one, CONTROLS):
            continue
        above = one.parent()
        while above is not None and not isinstance(above, CONTROLS):
            above = above.parent()
        is_bar = type(one).__name__ == "QScrollBar"
        if above is None and not is_bar and not one.objectName().startswith("qt_"):
            found.append(one)
    return found
