"""What a slide is called in sentences: by its title, where one is given."""

import re
from pathlib import Path

from spt_core.engine.messages import Request


def given_title(request: Request) -> str | None:
    """What the person who asks calls the slide; None where its file's name will do."""
    title = request.get("title")
    return title.strip() or None if isinstance(title, str) else None


def slide_title(request: Request) -> str:
    return given_title(request) or Path(str(request.get("slide", "This slide"))).name


def in_words(text: str, title: str | None, *files: str | Path) -> str:
    """A sentence of the core, with the title in place of files and their names."""
    if title is None:
        return text
    names = {str(file) for file in files} | {Path(file).name for file in files}
    longest_first = sorted(filter(None, names), key=len, reverse=True)
    if not longest_first:
        return text
    # Whole names only, and in one go: a title may hold such a name itself.
    pattern = "|".join(map(re.escape, longest_first))
    return re.sub(rf"(?<!\w)(?:{pattern})(?!\w)", lambda _: title, text)
