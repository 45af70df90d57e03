"""Getting encoders: the hub when asked, files, and folders for computers without it."""

import json
import sys
from types import SimpleNamespace

import huggingface_hub
import pytest
import torch
from huggingface_hub.errors import GatedRepoError
from safetensors.torch import load_file

from spt_core.cli import main
from spt_core.encoder_terms import terms_of, terms_sentence
from spt_core.errors import InputError
from spt_core.patches import known, load_encoder
from spt_core.patches.known import KNOWN
from spt_core.patches.known_entry import vit
from spt_core.patches.listing import EncoderState, list_encoders
from spt_core.patches.obtaining import get_encoder, pack_encoders, unpack_encoders
from spt_core.patches.store import stored_file
from spt_core.patches.vit import Vit
from spt_core.patches.vit_shape import VitShape
from tests.events import run_through

SHAPE = VitShape(48, 2, 3, 14, side=56, layer_scale=True)


@pytest.fixture
def tiny(monkeypatch):
    """A gated encoder of the hub that is small enough to be made here."""
    entry = vit("uni", SHAPE, "Some/Tiny/model.bin", "CC-BY-NC-ND-4.0", "A, 2026",
                gated=True, layouts=("DINOV2",))  # fmt: skip
    monkeypatch.setitem(known.KNOWN, "uni", entry)
    return entry.card


@pytest.fixture
def hub(monkeypatch):
    """A hub on this disk that notes what it was asked for."""
    asked = []
    model = Vit(SHAPE)

    def download(repo_id, filename, *, local_dir, **rest):
        asked.append((repo_id, filename, rest))
        path = local_dir / filename
        torch.save(model.state_dict(), path)
        return str(path)

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", download)
    return SimpleNamespace(asked=asked, model=model)


def test_only_get_fetches_and_what_comes_is_checked_and_kept(tiny, hub, capsys):
    assert main(["encoders"]) == 0
    listed = capsys.readouterr().out
    assert "accept its terms at https://huggingface.co/Some/Tiny" in listed
    assert "no commercial use, no sharing" in listed
    with pytest.raises(InputError, match="accept its terms at"):
        load_encoder("uni")
    assert hub.asked == []
    assert main(["encoders", "get", "uni"]) == 0
    # The library itself finds the user's token; nothing is handed to it from here.
    assert hub.asked == [("Some/Tiny", "model.bin", {})]
    said = capsys.readouterr()
    assert "no commercial use" in said.out + said.err
    kept = load_file(stored_file("uni"))
    assert torch.equal(kept["cls_token"], hub.model.state_dict()["cls_token"])
    assert load_encoder("uni").card.dim == 48
    assert not [p for p in stored_file("uni").parent.iterdir() if p.name[0] == "."]


def test_gated_offline_and_wrong_files_say_what_to_do(tiny, hub, monkeypatch):
    class Gated(GatedRepoError):
        def __init__(self):
            """Without the answer of a server, which there is none of."""

    def gated(*args, **rest):
        raise Gated

    def offline(*args, **rest):
        raise ConnectionError("no route to host")

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", gated)
    with pytest.raises(InputError, match=r"accept its terms.*HF_TOKEN"):
        run_through(get_encoder("uni"))
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", offline)
    with pytest.raises(InputError, match=r"no route.*terms.*on another computer"):
        run_through(get_encoder("uni"))

    def other(repo_id, filename, *, local_dir):
        torch.save({"a": torch.zeros(2)}, local_dir / filename)
        return local_dir / filename

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", other)
    with pytest.raises(InputError, match=r"lacks .*holds, beside them, a"):
        run_through(get_encoder("uni"))
    assert not stored_file("uni").exists()


def test_a_file_and_a_packed_folder_serve_a_computer_without_internet(
    tiny, tmp_path, monkeypatch, capsys
):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    model = Vit(SHAPE)
    torch.save({"teacher": model.state_dict()}, tmp_path / "mine.pth")
    assert main(["encoders", "get", "uni", "--from", str(tmp_path / "mine.pth")]) == 0
    before = load_encoder("uni").sha256
    folder = tmp_path / "usb"
    assert main(["encoders", "pack", str(folder)]) == 0
    assert "no sharing of the weights" in capsys.readouterr().out
    packed = json.loads((folder / "encoders.json").read_text())["encoders"]
    assert [one["name"] for one in packed] == ["uni"]
    monkeypatch.setenv("NAPARI_SPT_CACHE", str(tmp_path / "other computer"))
    assert not stored_file("uni").exists()
    assert main(["encoders", "get", "--from", str(folder)]) == 0
    assert load_encoder("uni").sha256 == before
    # One changed byte is noticed, and nothing is kept.
    stored_file("uni").unlink()
    content = bytearray((folder / packed[0]["file"]).read_bytes())
    content[-1] ^= 1
    (folder / packed[0]["file"]).write_bytes(content)
    with pytest.raises(InputError, match="checksum"):
        unpack_encoders(folder)
    assert not stored_file("uni").exists()
    with pytest.raises(InputError, match="no weights of hipt here"):
        pack_encoders(tmp_path / "b", ["hipt"])
    with pytest.raises(InputError, match="not a folder of 'spt encoders pack'"):
        unpack_encoders(tmp_path)


def test_every_known_encoder_is_listed_with_what_it_needs():
    listed = {one.card.name: one for one in list_encoders()}
    assert next(iter(listed)) == "bundled"
    assert {"resnet34", "hipt", "simclr", "hidisc", "plip", "uni"} <= listed.keys()
    assert listed["small-random"].is_ready
    assert listed["uni"].state is EncoderState.GATED
    assert listed["h-optimus-0"].state is EncoderState.OPEN
    assert listed["hidisc"].state is EncoderState.FILE
    assert listed["conch"].state is EncoderState.UNSUPPORTED
    assert all(one.how or one.is_ready for one in listed.values())
    for one in listed.values():
        assert one.card.page or one.card.weights in ("file", "seed", "bundled")


def test_terms_are_found_by_any_tools_name():
    for name, one in KNOWN.items():
        for called in (name, *one.also):
            assert terms_of(called) == one.card.terms, called
    assert "no commercial use" in terms_of("uni_v1")
    assert terms_of("h-optimus-0") == terms_of(None) == ()
    assert terms_sentence("uni_v1").startswith("The terms of the patch encoder uni_v1")
    assert terms_sentence(None, ("for research",)).endswith("too: for research.")
    assert terms_sentence("resnet34") == ""
