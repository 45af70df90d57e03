"""Standard streams that are closed, full, or that nobody reads any more."""

import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="a shell and /dev/full")


def run(words, cwd):
    command = f"{sys.executable} -m spt_core {words}"
    return subprocess.run(["bash", "-c", command], capture_output=True, cwd=cwd)


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ("encoders | true; exit ${PIPESTATUS[0]}", 1),
        ("encoders --json | true; exit ${PIPESTATUS[0]}", 1),
        ("encoders > /dev/full", 1),
        ("encoders --json > /dev/full", 1),
        ("info nothing 2> /dev/full", 1),
        ("info nothing --json 2> /dev/full", 1),
        ("encoders >&-", 0),
        ("info nothing 2>&-", 1),
        ("info nothing >&- 2>&- <&-", 1),
        ("encoders >&- 2>&- <&-", 0),
        ("encoders --json >&- 2>&- <&-", 0),
    ],
)
def test_a_command_ends_in_order_whatever_its_streams(words, code, tmp_path):
    done = run(words, tmp_path)
    said = done.stderr.decode()
    assert done.returncode == code, said
    assert "Traceback" not in said
    assert "ignored" not in said
    assert len(said.splitlines()) <= 1


def test_a_folder_that_is_gone_is_a_sentence(tmp_path):
    words = "train x --objective simclr --out y"
    gone = f"mkdir a; cd a; rmdir ../a; {sys.executable} -m spt_core {words}"
    done = subprocess.run(["bash", "-c", gone], capture_output=True, cwd=tmp_path)
    assert done.returncode == 1
    assert "is gone" in done.stderr.decode()


def test_a_file_never_takes_the_place_of_a_closed_stream(tmp_path):
    code = (
        "import os; from spt_core import cli; cli.main(['info', 'nothing']);"
        "file = open('x', 'w'); os.write(2, b'a warning'); assert file.fileno() > 2"
    )
    done = subprocess.run(
        ["bash", "-c", f'{sys.executable} -c "{code}" >&- 2>&- <&-'], cwd=tmp_path
    )
    assert done.returncode == 0
    assert (tmp_path / "x").read_bytes() == b""
