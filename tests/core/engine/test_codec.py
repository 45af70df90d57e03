"""Messages on the wire: what goes in comes out, and nothing else does."""

import json
import math
import os
import stat
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import get_args, get_origin, get_type_hints

import numpy as np
import pytest

from spt_core.engine.codec import ArrayFolder, ProtocolError, decode, encode
from spt_core.engine.protocol import (
    Analyse,
    Analysed,
    AskWithout,
    Cancel,
    Cancelled,
    Failed,
    FailureKind,
    FaithfulnessChecked,
    LookHere,
    Message,
    Noticed,
    NoticeKind,
    Predicted,
    Started,
    Step,
    Stop,
    Working,
)
from spt_core.events import Progress
from spt_core.insight.results import Remark, RemarkKind
from spt_core.slides.tissue import Tissue

TYPES = get_args(Message)


@pytest.fixture
def arrays(tmp_path):
    return ArrayFolder(tmp_path / "arrays")


def made(hint, *, fully=True):
    """A value of a type: with everything in it that may be there, or with nothing."""
    origin, args = get_origin(hint), get_args(hint)
    if args and type(None) in args:
        return made(args[0]) if fully else None
    if origin is tuple:
        items = args[:1] * (3 if fully else 0) if args[-1] is ... else args
        return tuple(made(item, fully=fully) for item in items)
    if origin is not None and issubclass(origin, Mapping):
        return {"µ": made(args[1])} if fully else {}
    if origin is np.ndarray:
        (scalar,) = get_args(args[1])
        return np.arange(6 if fully else 0).reshape(-1, 2).astype(scalar)
    if is_dataclass(hint):
        hints = get_type_hints(hint)
        return hint(
            **{one.name: made(hints[one.name], fully=fully) for one in fields(hint)}
        )
    if issubclass(hint, StrEnum):
        return list(hint)[-1]
    return {bool: True, int: 3, float: 0.1, str: "Nº 7\n", Path: Path("a b/ü.h5")}[hint]


def same(one, other):
    assert type(one) is type(other)
    if is_dataclass(one):
        for field in fields(one):
            same(getattr(one, field.name), getattr(other, field.name))
    elif isinstance(one, np.ndarray):
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(one, other)
    elif isinstance(one, tuple):
        assert len(one) == len(other)
        for a, b in zip(one, other, strict=True):
            same(a, b)
    else:
        assert one == other


def test_every_message_is_known():
    """A union of unions is flat, so that all types are among those tested here."""
    assert {Analyse, LookHere, Stop, Working, Predicted, Failed} < set(TYPES)
    assert all(is_dataclass(one) for one in TYPES)
    assert len({one.__name__ for one in TYPES}) == len(TYPES)


@pytest.mark.parametrize("fully", [True, False])
@pytest.mark.parametrize("kind", TYPES)
def test_every_message_comes_out_as_it_went_in(kind, fully, arrays):
    message = made(kind, fully=fully)
    line = encode(message, 7, arrays.put)
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    record = json.loads(line)
    assert (record["id"], record["type"]) == (7, kind.__name__)
    number, found = decode(line, arrays.take)
    assert number == 7
    same(found, message)
    # Whoever reads arrays removes them.
    assert not arrays.folder.exists() or not list(arrays.folder.iterdir())


@pytest.mark.parametrize("kind", TYPES)
def test_missing_and_surplus_fields_are_refused(kind, arrays):
    record = json.loads(encode(made(kind), 7, arrays.put))
    value = record["value"]
    for wrong in (
        {**value, "more": 1},
        *({n: v for n, v in value.items() if n != name} for name in value),
        list(value),
        None,
    ):
        line = json.dumps({**record, "value": wrong}).encode()
        with pytest.raises(ProtocolError) as caught:
            decode(line, arrays.take)
        assert (caught.value.request, caught.value.message_type) == (7, kind)


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"no JSON",
        b"\xff\xfe",
        b"[1, 2]",
        b'{"id": 1, "type": "Stop"}',
        b'{"id": 1, "type": "Stop", "value": {}, "more": 1}',
        b'{"id": "1", "type": "Stop", "value": {}}',
        b'{"id": true, "type": "Stop", "value": {}}',
        b'{"id": 1, "type": "Dance", "value": {}}',
        b'{"id": 1, "type": ["Stop"], "value": {}}',
        b'{"id": 1, "type": "Tissue", "value": {}}',
    ],
)
def test_what_is_no_message_is_refused(line, arrays):
    with pytest.raises(ProtocolError):
        decode(line, arrays.take)


@pytest.mark.parametrize(
    ("kind", "name", "wrong"),
    [
        (Cancel, "request", "1"),
        (Cancel, "request", True),
        (Cancel, "request", 1.5),
        (Cancel, "request", None),
        (LookHere, "l0_xy", [1.0]),
        (LookHere, "l0_xy", [1.0, "2"]),
        (LookHere, "l0_xy", {"x": 1.0, "y": 2.0}),
        (Analyse, "slide", 5),
        (Analyse, "title", None),
        (Analyse, "class_map", 1),
        (Working, "step", "dancing"),
        (Working, "progress", {"done": 1}),
        (Noticed, "values", {"patches": "many"}),
        (Failed, "kind", None),
        (AskWithout, "l0_polygons", [[[0, 0], [1, 1]]]),
        (AskWithout, "l0_polygons", [{"npy": 5}]),
        (AskWithout, "l0_polygons", [{"npy": "nowhere.npy"}]),
    ],
)
def test_values_of_another_kind_are_refused(kind, name, wrong, arrays):
    record = json.loads(encode(made(kind), 7, arrays.put))
    record["value"][name] = wrong
    with pytest.raises(ProtocolError, match=name):
        decode(json.dumps(record).encode(), arrays.take)


@pytest.mark.parametrize(
    "message",
    [
        Cancel("1"),
        Cancel(True),
        Working("opening"),
        Noticed(NoticeKind.UPSAMPLED, {1: 2.0}),
        Analyse("slide.svs", "s", Path("f")),
        AskWithout(Path("f"), "s", Path("m"), ([[0, 0], [1, 1]],)),
        Failed(FailureKind.NO_TISSUE, tissue=Tissue(np.zeros((2, 2)), (1.0, 1.0))),
        Progress(1, 2),
        None,
    ],
)
def test_nothing_else_is_sent(message, arrays):
    with pytest.raises(ProtocolError):
        encode(message, None, arrays.put)


def test_numbers_of_numpy_are_numbers(arrays):
    message = replace(
        made(Started), patches=np.int64(5), mpp_xy=(np.float32(0.5), np.float64(0.25))
    )
    record = json.loads(encode(message, None, arrays.put))
    assert record["value"]["patches"] == 5
    assert record["value"]["mpp_xy"] == [0.5, 0.25]
    whole = Analysed(Path("f"), np.bool_(True), 3)
    _, found = decode(encode(whole, None, arrays.put), arrays.take)
    assert found.reused is True
    assert isinstance(found.seconds, float)


def test_numbers_that_are_none(arrays):
    values = {"nan": math.nan, "inf": math.inf}
    line = encode(Failed(FailureKind.DEFECT, values=values), None, arrays.put)
    _, found = decode(line, arrays.take)
    assert math.isnan(found.values["nan"])
    assert found.values["inf"] == math.inf


@pytest.mark.parametrize("value", ["resnet34", 3, 0.5, None])
def test_a_value_of_several_kinds_keeps_its_own(value, arrays):
    message = made(Predicted)
    remark = Remark(RemarkKind.FEW_PATCHES, value)
    message = Predicted(replace(message.prediction, remarks=(remark,)))
    _, found = decode(encode(message, None, arrays.put), arrays.take)
    same(found.prediction.remarks, (remark,))


@pytest.mark.skipif(os.name == "nt", reason="file names are text there")
def test_a_file_name_that_is_no_text(arrays):
    slide = Path(os.fsdecode(b"/slides/\xff\xfe.svs"))
    message = Analyse(slide, "s", Path("f"))
    _, found = decode(encode(message, None, arrays.put), arrays.take)
    assert found.slide == slide


def test_arrays_are_whole_private_and_gone_when_read(arrays):
    names = {arrays.put("x", np.zeros(3)) for _ in range(2)}
    assert {path.name for path in arrays.folder.iterdir()} == names
    if os.name == "posix":
        assert stat.S_IMODE(arrays.folder.stat().st_mode) == 0o700
    for name in names:
        # Names never lead elsewhere.
        assert arrays.take(f"../{name}").shape == (3,)
    assert not list(arrays.folder.iterdir())
    arrays.clear()
    assert not arrays.folder.exists()


def test_an_array_for_which_there_is_no_room_leaves_nothing(arrays, monkeypatch):
    def half(path, values, **_):
        Path(path).write_bytes(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "save", half)
    with pytest.raises(OSError, match="No space"):
        encode(made(FaithfulnessChecked), 1, arrays.put)
    assert not list(arrays.folder.iterdir())


def test_the_window_may_speak_without_torch_and_qt():
    code = (
        "import sys\n"
        "import spt_core.engine.client\n"
        "assert not {'torch', 'qtpy', 'napari'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_step_without_anything_to_count(arrays):
    line = encode(Working(Step.OPENING), 1, arrays.put)
    assert decode(line, arrays.take) == (1, Working(Step.OPENING))
    assert decode(encode(Cancelled(), 2, arrays.put), arrays.take) == (2, Cancelled())
