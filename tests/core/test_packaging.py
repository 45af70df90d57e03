"""The package as users get it: the wheel in an environment of its own."""

import ast
import configparser
import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterable
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def setup_cfg() -> configparser.ConfigParser:
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg", encoding="utf-8")
    return config


def python_folders() -> set[str]:
    """Every package by its folder."""
    found = set()
    for top in (ROOT / "napari_spt", ROOT / "src_core" / "spt_core"):
        for init in top.rglob("__init__.py"):
            found.add(".".join(init.parent.relative_to(top.parent).parts))
    return found


def test_every_package_is_listed():
    listed = setup_cfg()["options"]["packages"].split()
    assert set(listed) == python_folders()
    assert len(listed) == len(set(listed))


def imported_by(files: Iterable[Path]) -> set[str]:
    """The packages of others that files import."""
    names = set()
    for path in files:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                names |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                names.add(node.module.split(".")[0])
    ours = {"napari_spt", "spt_core", "tests", *(path.stem for path in files)}
    return names - set(sys.stdlib_module_names) - ours


def declared(*extras: str) -> set[str]:
    """The distributions that an installation with these extras asks for."""
    config = setup_cfg()
    lists = [config["options"]["install_requires"]]
    lists += [config["options.extras_require"][extra] for extra in extras]
    lines = [line.strip() for text in lists for line in text.splitlines()]
    return {canonical(re.split(r"[^\w.-]", line)[0]) for line in lines if line}


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


@pytest.mark.parametrize(
    ("folders", "extras"),
    [
        # Without the extra, places of LazySlide's tiles are left out, and that is said.
        (["napari_spt", "src_core", "scripts"], ["lazyslide"]),
        (["tests"], ["test"]),
        (["benchmarks"], ["bench"]),
    ],
)
def test_what_is_imported_is_declared(folders, extras):
    files = [p for folder in folders for p in (ROOT / folder).rglob("*.py")]
    # Runs in an environment of another tool, which the benchmark sets up.
    used = imported_by([p for p in files if p.name != "_lazyslide_run.py"])
    brought_by = packages_distributions()
    allowed = declared(*extras)
    undeclared = {
        module
        for module in used
        if not {canonical(name) for name in brought_by.get(module, [])} & allowed
    }
    assert not undeclared


def test_layers_of_the_design_hold():
    """import-linter: the core knows no window, the plugin no torch."""
    lint = Path(sys.executable).with_name("lint-imports")
    done = subprocess.run(
        [str(lint)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "uv", "build", "-q", "--wheel", "-o", folder, ROOT],
        check=True,
    )
    (path,) = folder.glob("*.whl")
    return path


def test_the_wheel_holds_the_packages_and_nothing_else(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.split("/")[0] for name in names}
    assert {t for t in tops if not t.endswith(".dist-info")} == {
        "napari_spt",
        "spt_core",
    }
    for package in python_folders():
        assert f"{package.replace('.', '/')}/__init__.py" in names
    assert "napari_spt/napari.yaml" in names
    assert "spt_core/py.typed" in names
    assert wheel.stat().st_size < 20e6


def test_hub_metadata_is_complete(wheel):
    archive = zipfile.ZipFile(wheel)
    (name,) = (n for n in archive.namelist() if n.endswith(".dist-info/METADATA"))
    metadata = archive.read(name).decode()
    for line in (
        "Name: napari-spt",
        "Classifier: Framework :: napari",
        "License-Expression: BSD-3-Clause",
        "Requires-Python: >=3.11",
        "Project-URL: Documentation,",
        "Project-URL: Bug Tracker,",
        "Project-URL: User Support,",
        "Project-URL: Source Code,",
        "Description-Content-Type: text/markdown",
    ):
        assert line in metadata
    base = [n for n in metadata.splitlines() if n.startswith("Requires-Dist")]
    qt = [n for n in base if "PySide" in n or "PyQt" in n]
    assert all("extra ==" in n for n in qt)


def test_the_wheel_works_in_a_new_environment(wheel, tmp_path):
    """`npe2 validate` and `spt`, far from the source tree."""
    env = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    uv = [sys.executable, "-m", "uv"]
    venv = tmp_path / "env"
    subprocess.run([*uv, "venv", "-q", "-p", sys.executable, venv], check=True)
    bin_ = venv / ("Scripts" if os.name == "nt" else "bin")
    install = [*uv, "pip", "install", "-q", "-p", bin_ / "python", wheel]
    subprocess.run(install, check=True)

    def run(*command):
        done = subprocess.run(
            command, cwd=tmp_path, env=env, capture_output=True, text=True, check=True
        )
        return done.stdout

    where = run(bin_ / "python", "-c", "import spt_core; print(spt_core.__file__)")
    assert str(venv.resolve()) in str(Path(where.strip()).resolve())
    assert "valid" in run(bin_ / "npe2", "validate", "napari-spt")
    assert "spt 0." in run(bin_ / "spt", "--version")
    for command in ("info", "sample", "encode", "train"):
        assert command in run(bin_ / "spt", "--help")
    code = (
        "from tests_slide import make; from spt_core import open_slide; "
        "s = open_slide(make()); print(s.pyramid[0][:9, :9].compute().shape)"
    )
    (tmp_path / "tests_slide.py").write_text(
        "import numpy, tifffile\n"
        "def make():\n"
        "    tifffile.imwrite('a.tif', numpy.zeros((900, 900, 3), 'uint8'),\n"
        "        tile=(256, 256), compression='jpeg', photometric='rgb')\n"
        "    return 'a.tif'\n"
    )
    assert "(9, 9, 3)" in run(bin_ / "python", "-c", code)
