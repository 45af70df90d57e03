"""The public Python interface: what is documented, and that the example runs."""

import re
from pathlib import Path

import spt_core
from tests.core.patches.conftest import make_slide

PAGE = (Path(__file__).parents[2] / "docs" / "api.md").read_text(encoding="utf-8")


def test_the_page_describes_exactly_what_is_public():
    described = re.findall(r"^\| `(\w+)", PAGE, flags=re.MULTILINE)
    assert sorted(described) == sorted(spt_core.__all__)
    assert len(described) == len(set(described))


def test_every_public_name_is_there():
    for name in spt_core.__all__:
        assert getattr(spt_core, name).__doc__ or name == "__version__"


def test_the_example_runs(tmp_path, monkeypatch, capsys):
    (tmp_path / "slides").mkdir()
    rows = ["slide,label"]
    for i in range(4):
        make_slide(tmp_path / "slides" / f"slide{i}.tif", 900, 700, seed=i)
        rows.append(f"slide{i},{'ab'[i % 2]}")
    (tmp_path / "labels.csv").write_text("\n".join(rows) + "\n")
    monkeypatch.chdir(tmp_path)
    (example,) = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)
    known = {}
    exec(example, known)
    assert capsys.readouterr().out.startswith("(900, 700) (0.5, 0.5)")
    assert known["prediction"].probabilities.shape == (2,)
    assert known["classes"].probabilities.shape == (len(known["tokens"]), 2)
    assert known["attention"].values.ndim == 2
