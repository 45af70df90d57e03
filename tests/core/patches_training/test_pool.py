"""What is learned from: which files, whose, how much memory, which make a step."""

import shutil
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image

from spt_core.errors import InputError
from spt_core.events import Note
from spt_core.patches.training import PatchTrainSettings
from spt_core.patches.training.plan import PatchPlan
from spt_core.patches.training.pool import fill_pool
from spt_core.patches.training.tiles import find_origins
from tests.core.patches.conftest import make_slide
from tests.core.patches_training.made_tiles import SIDE, write_tiles


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_tiles(tmp_path_factory.mktemp("made") / "data")


def settings_for(folder, **changes):
    plain = PatchTrainSettings(
        sources=(str(folder / "tiles"),),
        method="hidisc",
        out="",
        tables=(str(folder / "tiles.csv"),),
        arch="small-random",
        init="none",
        view_size=32,
        batch_size=24,
    )
    return replace(plain, **changes).resolved(48, 0.5)


def opened(settings):
    events = fill_pool(find_origins(settings.sources, settings.tables), settings)
    notes = []
    while True:
        try:
            event = next(events)
        except StopIteration as stop:
            return stop.value, notes
        if isinstance(event, Note):
            notes.append(event.message)


def filled(settings):
    source, notes = opened(settings)
    return source.at(0), notes


def test_tables_say_whose_tiles_are(folder):
    pool, notes = filled(settings_for(folder))
    assert (len(pool), pool.slide_count, pool.patient_count) == (96, 24, 12)
    assert pool.known.all()
    assert notes == []
    assert Counter(pool.label.tolist()) == {0: 32, 1: 32, 2: 32}
    assert [len(slides) for slides in pool.by_patient] == [2] * 12
    assert (pool.um == 0.5).all()


def test_without_a_table_every_tile_is_its_own(folder):
    pool, notes = filled(settings_for(folder, tables=()))
    assert len(pool.without_patient) == len(pool) == pool.patient_count == 96
    assert pool.by_patient == []
    assert "--tile-mpp" in notes[0]


def test_a_dicom_file_hides_neither_tiles_nor_slides(folder, tmp_path):
    here = tmp_path / "here"
    shutil.copytree(folder / "tiles", here)
    tiles = {(one.path.name, False) for one in find_origins([str(here)], [])}
    (here / "scan.dcm").write_bytes(b"no image")
    alone = {one.path.name for one in find_origins([str(here)], [])}
    assert {name for name, _ in tiles} < alone
    make_slide(here / "slide.tif")
    Image.new("P", (8, 8)).save(here / "slide.truth.png")
    found = {(one.path.name, one.is_slide) for one in find_origins([str(here)], [])}
    assert found == tiles | {("slide.tif", True), ("scan.dcm", True)}


def test_what_is_kept_for_a_test_is_not_learned_from(folder, tmp_path):
    lines = (folder / "tiles.csv").read_text().splitlines()
    some = ["file,patient,split", *(
        f"{line.split(',')[0]},{line.split(',')[2]},"
        f"{'test' if ',p3,' in line else 'train'}"
        for line in lines[1:41]
    )]  # fmt: skip
    (tmp_path / "some.csv").write_text("\n".join(some))
    pool, _ = filled(settings_for(folder, tables=(str(tmp_path / "some.csv"),)))
    # 40 of 96 files are named, those of p3 not for training
    assert len(pool) == 32


@pytest.mark.parametrize(
    ("table", "sentence"),
    [
        ("file,slide\nnobody.png,a", "nobody.png"),
        ("picture\np0-0.png", "neither a column file nor a column slide"),
        ("file,mpp\np0-0.png,fine", "line 2: mpp 'fine'"),
        ("file,split\np0-0.png,maybe", "no split 'maybe'"),
        ("file,patient,split\np0-0.png,p0,\np0-1.png,p0,test", "p0 is in test and"),
        ("file,slide,split\np0-0.png,s0,train\np0-1.png,s0,val", "slide s0 is in"),
    ],
)
def test_wrong_tables_are_said(folder, tmp_path, table, sentence):
    (tmp_path / "t.csv").write_text(table)
    with pytest.raises(InputError, match=sentence):
        find_origins([str(folder / "tiles")], [str(tmp_path / "t.csv")])


def test_a_patient_in_two_tables_is_on_one_side_of_the_split(folder, tmp_path):
    (tmp_path / "slides.csv").write_text("slide,patient,split\na.svs,p0,test")
    (tmp_path / "tiles.csv").write_text("file,patient\np0-0.png,p0")
    tables = [str(tmp_path / "slides.csv"), str(tmp_path / "tiles.csv")]
    with pytest.raises(InputError, match="patient p0 is in test and train"):
        find_origins([str(folder / "tiles")], tables)


def test_memory_is_bounded_and_shared_fairly(folder):
    room = 40 * SIDE * SIDE * 3
    bounded = settings_for(folder, memory_gb=room / 1e9, refresh=0.0)
    pool, notes = filled(bounded)
    assert pool.nbytes <= room
    assert len(pool) == 40
    # one of each of 24 slides before a second of any
    assert max(Counter(pool.slide.tolist()).values()) == 2
    assert len(set(pool.slide.tolist())) == 24
    assert "56 tiles and patches are left out" in notes[-1]
    again, _ = filled(bounded)
    for one, other in zip(pool.tiles, again.tiles, strict=True):
        assert np.array_equal(one, other)


def test_fine_tiles_are_kept_no_finer_than_needed(tmp_path):
    (tmp_path / "tiles").mkdir()
    Image.new("RGB", (400, 300), "pink").save(tmp_path / "tiles" / "a.png")
    Image.new("RGB", (40, 30), "pink").save(tmp_path / "tiles" / "b.png")
    settings = settings_for(tmp_path, tables=(), tile_mpp=0.05)
    pool, _ = filled(settings)
    assert {tile.shape for tile in pool.tiles} == {(75, 100, 3), (8, 10, 3)}
    np.testing.assert_allclose(pool.um, 0.2)


def test_bad_files_are_said_and_left_out(folder, tmp_path):
    (tmp_path / "broken.png").write_bytes(b"no picture")
    sources = (str(folder / "tiles"), str(tmp_path / "broken.png"))
    pool, notes = filled(settings_for(folder, sources=sources))
    assert len(pool) == 96
    assert "broken.png" in notes[-1]
    with pytest.raises(InputError, match="no file or folder"):
        find_origins([str(tmp_path / "nowhere")], [])
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="nothing to learn from"):
        find_origins([str(tmp_path / "empty")], [])


@pytest.fixture(scope="module")
def slide(tmp_path_factory):
    path = tmp_path_factory.mktemp("slide") / "one.tif"
    return make_slide(path, 1500, 1400)


def test_slides_give_patches_of_their_tissue(slide):
    settings = settings_for(
        slide.parent, sources=(str(slide),), tables=(), patches_per_slide=20
    )
    pool, _ = filled(settings)
    assert len(pool) == 20
    assert pool.slide_count == pool.patient_count == 1
    assert pool.known.all()
    assert {tile.shape for tile in pool.tiles} == {(48, 48, 3)}  # 1.5 views
    # tissue: darker than the glass
    assert np.median([tile.mean() for tile in pool.tiles]) < 235
    again, _ = filled(settings)
    assert np.array_equal(np.stack(pool.tiles), np.stack(again.tiles))


def plan_of(folder, **changes):
    settings = settings_for(folder, **changes)
    source, _ = opened(settings)
    return PatchPlan(source, settings, settings.batch_size, torch.device("cpu"))


def test_hidisc_draws_patients_slides_and_patches(folder):
    plan = plan_of(folder, group=(2, 2))
    for step in range(5):
        tiles = plan.tiles(step)
        assert len(tiles) == len(set(tiles.tolist())) == 24
        of_patient = Counter(plan.pool(0).patient[tiles].tolist())
        of_slide = Counter(plan.pool(0).slide[tiles].tolist())
        assert list(of_patient.values()) == [4] * 6
        assert list(of_slide.values()) == [2] * 12
        assert np.array_equal(tiles, plan.tiles(step))
    assert not np.array_equal(plan.tiles(0), plan.tiles(1))


def test_small_patients_do_not_stop_it(folder):
    """A batch larger than all that a group allows takes more of each."""
    assert len(plan_of(folder, group=(1, 1), batch_size=90).tiles(0)) == 90
    assert sorted(plan_of(folder, batch_size=96).tiles(3)) == list(range(96))


def test_tiles_of_nobody_have_their_share(folder, tmp_path):
    lines = (folder / "tiles.csv").read_text().splitlines()
    bare = [",".join((line.split(",")[0], "", "")) for line in lines[49:]]
    (tmp_path / "half.csv").write_text(
        "\n".join(
            [
                "file,slide,patient",
                *(",".join(x.split(",")[:3]) for x in lines[1:49]),
                *bare,
            ]
        )
    )
    plan = plan_of(folder, tables=(str(tmp_path / "half.csv"),))
    assert int(plan.pool(0).known.sum()) == 48
    for step in range(3):
        assert int(plan.pool(0).known[plan.tiles(step)].sum()) == 12


def test_simclr_sees_every_tile_once_an_epoch(folder):
    plan = plan_of(folder, method="simclr")
    assert plan.steps_per_epoch == 4
    seen = np.concatenate([plan.tiles(step) for step in range(4)])
    assert sorted(seen) == list(range(96))
    batch = plan.make(2)
    assert np.array_equal(batch.items, plan.tiles(2))
    assert batch.count == 48
    places = torch.cat([chunk.places for chunk in batch.chunks])
    assert torch.equal(places, torch.arange(48))


def test_processes_share_one_batch(folder):
    whole = plan_of(folder)
    one = torch.cat([chunk.inputs[0] for chunk in whole.make(1).chunks])
    parts = [
        torch.cat([c.inputs[0] for c in replace(whole, rank=r, world=2).make(1).chunks])
        for r in (0, 1)
    ]
    split = [part.unflatten(0, (2, 12)) for part in parts]
    assert torch.equal(torch.cat(split, dim=1).flatten(0, 1), one)
