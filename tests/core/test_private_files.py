"""What others may not read, and names that they cannot guess."""

import os
import stat

import numpy as np
import pytest

from spt_core.commands.predict import patients_key
from spt_core.errors import InputError
from spt_core.files import held_by_one, private_folder, written_whole
from spt_core.patients_key import KEY_FILE, new_key, read_key, write_key
from spt_core.studies.study_folder import Stage, StudyFolder
from spt_core.studies.study_recorder import Recorder
from spt_core.tokens import TokenFacts
from spt_core.tokens.h5_writing import h5_file
from spt_core.tokens.writing import PartialFeatures
from spt_core.training.run_folder import RunFolder

STAGES = (Stage.CHECK,)
POSIX = pytest.mark.skipif(os.name == "nt", reason="Windows has no such rights")


def rights(path):
    return stat.S_IMODE(path.stat().st_mode)


@POSIX
def test_a_key_and_a_cache_are_their_owners_alone(tmp_path):
    write_key(tmp_path / KEY_FILE, key := new_key())
    assert rights(tmp_path / KEY_FILE) == 0o600
    assert read_key(tmp_path / KEY_FILE) == key
    (tmp_path / "cache").mkdir(mode=0o755)
    assert rights(private_folder(tmp_path / "cache")) == 0o700
    assert rights(private_folder(tmp_path / "a" / "b")) == 0o700
    with written_whole(tmp_path / "plain.txt") as temporary:
        temporary.write_text("x")
    assert rights(tmp_path / "plain.txt") == 0o666 & ~umask()


@POSIX
def test_nothing_is_written_where_a_link_leads(tmp_path):
    """As somebody else may put into a folder that both write to."""
    victim = tmp_path / "victim"
    victim.write_text("precious")
    folder = tmp_path / "out"
    folder.mkdir()
    for name in (".lock", "s.h5.partial", ".s.h5.finishing"):
        (folder / name).symlink_to(victim)
    with pytest.raises(InputError, match=r"\.lock is a link"):
        held_by_one(folder / ".lock").__enter__()
    with pytest.raises(InputError, match="partial is a link"):
        PartialFeatures(folder / "s.h5", {}, 4)
    (folder / "s.h5.partial").unlink()
    facts = TokenFacts(name="s", patch_size=64)
    with PartialFeatures(folder / "s.h5", {}, 4) as log:
        assert rights(folder / "s.h5.partial") == 0o666 & ~umask()
        log.append(np.zeros(1, np.int64), np.zeros((1, 4), np.float32))
        places = np.zeros((1, 2), np.int64)
        log.finish(places, places, facts, {})
    assert victim.read_text() == "precious"
    assert not (folder / "s.h5").is_symlink()


def umask():
    now = os.umask(0)
    os.umask(now)
    return now


@pytest.mark.parametrize("text", ["", "\n", "00", "no key", "0" * 31, "\xff"])
def test_an_empty_short_or_broken_key_is_refused(tmp_path, text):
    path = tmp_path / KEY_FILE
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(InputError, match=KEY_FILE):
        patients_key(tmp_path / "model.safetensors", None)


def test_temporary_names_differ_and_nothing_is_left(tmp_path):
    names = set()
    for _ in range(3):
        with written_whole(tmp_path / "table.csv") as temporary:
            names.add(temporary.name)
            temporary.write_text("x")
    assert len(names) == 3
    with pytest.raises(OSError, match="full"), written_whole(tmp_path / "b.csv"):
        raise OSError("full")
    assert [path.name for path in tmp_path.iterdir()] == ["table.csv"]


@POSIX
@pytest.mark.parametrize(
    ("name", "write"),
    [
        ("s.h5.partial", lambda at: PartialFeatures(at / "s.h5", {}, 4)),
        (".s.finishing", lambda at: h5_file(at / ".s.finishing", 9).__enter__()),
        ("metrics.csv", lambda at: RunFolder(at).add_metrics({"step": 1})),
        (".lock", lambda at: RunFolder(at).held().__enter__()),
        ("growth", lambda at: RunFolder(at).held().__enter__()),
        ("events.jsonl", lambda at: Recorder(StudyFolder(at), STAGES).enter(*STAGES)),
        ("report", lambda at: StudyFolder(at).held().__enter__()),
        ("runs/1/model", lambda at: StudyFolder(at).held().__enter__()),
    ],
)
@pytest.mark.parametrize("is_there", [True, False])
def test_links_in_a_folder_lead_nothing_out_of_it(tmp_path, name, write, is_there):
    mine, link = tmp_path / "mine", tmp_path / "folder" / name
    if is_there:
        mine.write_text("of somebody")
    link.parent.mkdir(parents=True)
    link.symlink_to(mine)
    with pytest.raises(InputError, match=f"{link.name} is a link"):
        write(tmp_path / "folder")
    assert mine.exists() == is_there
    assert not is_there or mine.read_text() == "of somebody"
