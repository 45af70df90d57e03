"""Which patch encoders are ready, and how to get the others, in the docks."""

from napari_spt.parts.encoder_dialog import EncoderDialog
from napari_spt.training.advanced_forms import AdvancedForms
from napari_spt.training.draft import StudyDraft
from spt_core.patches.listing import EncoderState
from spt_core.patches.store import stored_file


def choose(dialog, name):
    names = [one.card.name for one in dialog.listed]
    dialog.table.selectRow(names.index(name))
    return dialog.about.text()


def test_all_are_listed_with_what_they_ask_for(qtbot):
    dialog = EncoderDialog(None)
    qtbot.addWidget(dialog)
    assert dialog.listed[0].state is EncoderState.READY
    assert dialog.use.isEnabled()
    said = choose(dialog, "uni")
    assert "accept its terms at https://huggingface.co/MahmoodLab/UNI" in said
    assert "no commercial use" in said
    assert "It has learned from Mass-100K" in said
    assert not dialog.use.isEnabled()


def test_a_ready_one_is_used_for_a_study(qtbot, monkeypatch, tmp_path):
    monkeypatch.setenv("NAPARI_SPT_CACHE", str(tmp_path))
    stored_file("resnet34").parent.mkdir(parents=True)
    stored_file("resnet34").touch()
    draft = StudyDraft()
    forms = AdvancedForms(draft, "encode")
    qtbot.addWidget(forms)
    forms.open()
    dialog = forms.show_encoders()
    choose(dialog, "resnet34")
    dialog.use.click()
    assert draft.encode == {"encoder": "resnet34"}
    dialog.close()


def test_a_ready_one_is_used_for_an_analysis(open_dock, monkeypatch, tmp_path):
    _, dock = open_dock()
    dock.advanced.open()
    monkeypatch.setenv("NAPARI_SPT_CACHE", str(tmp_path))
    stored_file("hipt").parent.mkdir(parents=True)
    stored_file("hipt").touch()
    dialog = dock.advanced.show_encoders()
    choose(dialog, "hipt")
    dialog.use.click()
    assert dock.state.options.encoder == "hipt"
