"""All checks in turn."""

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from spt_core.self_test.finding import Finding, failed, in_one_line


def examine() -> Iterator[Finding]:
    """Check this computer; what goes wrong is a finding, never an error."""
    try:
        from spt_core.self_test import children, machine, work
    # A library of torch's that is missing is an OSError, and there are others.
    except Exception as error:  # noqa: BLE001
        yield failed(
            "libraries",
            in_one_line(error),
            "Install napari-spt again in a new environment: pip install napari-spt",
        )
        return
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as made:
        folder = Path(made)
        yield from _guarded("versions", machine.versions)
        yield from _guarded("memory", machine.memory)
        yield from _guarded("disks", machine.disks)
        yield from _guarded("devices", machine.described_devices)
        yield from _guarded("slides", lambda: work.slides(folder))
        for name in machine.names_of_devices():
            if name == work.REFERENCE:
                yield from _guarded(name, lambda: work.work_on("cpu", folder))
            else:
                yield from children.on_device(name, folder)
        yield from _guarded("window", children.window)
        yield from _guarded("engine", lambda: children.engine(folder))


def _guarded(
    name: str, check: Callable[[], Iterator[Finding] | list[Finding]]
) -> Iterator[Finding]:
    try:
        yield from check()
    except Exception as error:  # noqa: BLE001 - the other checks go on
        yield failed(name, in_one_line(error), "Report it with these lines.")
