"""One line of a self-test, without anything that says whose computer it is."""

import getpass
import re
import sys
import tempfile
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path


class Status(StrEnum):
    """How a check ended."""

    OK = "ok"
    DOUBTFUL = "doubtful"  # work is possible, but not all of it or not as it should be
    FAILED = "failed"


@dataclass(frozen=True)
class Finding:
    """What a check found, and what to do unless it is ok."""

    check: str
    status: Status
    found: str
    advice: str = ""

    def __post_init__(self) -> None:
        # A finding is pasted into a public report: no part may forget this.
        for name in ("found", "advice"):
            object.__setattr__(self, name, anonymous(getattr(self, name)))


def ok(check: str, found: str) -> Finding:
    return Finding(check, Status.OK, found)


def doubtful(check: str, found: str, advice: str) -> Finding:
    return Finding(check, Status.DOUBTFUL, found, advice)


def failed(check: str, found: str, advice: str) -> Finding:
    return Finding(check, Status.FAILED, found, advice)


def in_one_line(error: BaseException) -> str:
    words = " ".join(str(error).split())
    return f"{type(error).__name__}: {words}" if words else type(error).__name__


def anonymous(text: str) -> str:
    """Take out the user's name, and folders whose names may hold it."""
    folders = {
        "~": Path.home(),
        "(temporary)": Path(tempfile.gettempdir()),
        "(environment)": Path(sys.prefix),
    }
    found = [
        (str(form), word)
        for word, folder in folders.items()
        for form in (folder, folder.absolute(), folder.resolve())
    ]
    # The longest first: an environment usually lies within the home folder.
    for folder_name, word in sorted(found, key=lambda one: -len(one[0])):
        for form in (folder_name, folder_name.replace("\\", "\\\\")):
            if len(form) > 1:
                text = text.replace(form, word)
    for name in (_user(), Path.home().name):
        if len(name) > 1:
            text = re.sub(rf"(?<!\w){re.escape(name)}(?!\w)", "(user)", text)
    return text


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):  # a container may have no such user
        return ""
