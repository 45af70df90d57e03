"""Writing files so that nobody ever reads half of one, and keeping others out."""

import errno
import os
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import FileIO
from pathlib import Path

from spt_core.errors import InputError

_TEMPORARY = re.compile(r"\..+\.[0-9a-f]{12}(\.\w+)?")


@contextmanager
def written_whole(path: Path, *, private: bool = False) -> Iterator[Path]:
    """Yield a temporary path beside ``path``, renamed to ``path`` on success.

    The temporary name keeps the ending, by which some writers choose a format, and
    cannot be guessed: in a folder that others write to, nobody has put a link there.
    What was written is on the disk before it gets its name. On an error it is removed
    and ``path`` stays as it was. What is ``private`` nobody else may read.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    secret = secrets.token_hex(6)
    temporary = path.with_name(f".{path.stem[:100]}.{secret}{path.suffix}")
    mode = 0o600 if private else 0o666
    try:
        os.close(os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, mode))
        yield temporary
        to_disk(temporary)
        os.replace(temporary, path)
        folder_to_disk(path.parent)
    except OSError as error:
        # Of the name that nobody knows, the one that they do.
        if error.filename in (None, str(temporary)) and error.errno is not None:
            error.filename = str(path)
        raise
    # Libraries have errors of their own for a disk that is full, or a quota used up.
    except Exception as error:
        refusal = _refusal(temporary)
        if refusal is not None and refusal.errno is not None:
            why = os.strerror(refusal.errno)
            raise OSError(refusal.errno, why, str(path)) from error
        raise
    finally:
        temporary.unlink(missing_ok=True)


def remove_left(*folders: Path) -> None:
    """Remove what killed processes left of files that they were writing.

    For folders that nobody else writes to: a process that is at work would lose its
    file.
    """
    for folder in folders:
        with suppress(OSError):
            for path in folder.iterdir():
                if _TEMPORARY.fullmatch(path.name) and path.is_file():
                    path.unlink(missing_ok=True)


def _refusal(path: Path) -> OSError | None:
    """What the system says to more in a file that will be removed; None if nothing."""
    left = memoryview(bytes(2**20))
    try:
        with FileIO(path, "ab") as file:
            while left:
                left = left[file.write(left) :]
            os.fsync(file.fileno())
    except OSError as error:
        return error
    return None


def private_folder(path: Path) -> Path:
    """Make a folder that nobody else may look into, also where it was there."""
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    with suppress(OSError):  # somebody else's, or a system without such rights
        path.chmod(0o700)
    return path


def to_disk(path: Path) -> None:
    """What was written, before anything relies on it."""
    # Windows flushes only what is open for writing.
    with path.open("r+b") as file:
        os.fsync(file.fileno())


def folder_to_disk(folder: Path) -> None:
    """The new name; only POSIX systems open folders, and not every file system."""
    if os.name == "nt":
        return
    with suppress(OSError):
        number = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(number)
        finally:
            os.close(number)


def refuse_no_file(path: Path) -> None:
    """Refuse a pipe, a device or the like, at which a reader may wait for ever."""
    if path.exists() and not (path.is_file() or path.is_dir()):
        raise InputError(
            f"{path} is neither a file nor a folder (but a pipe, a device or the like)."
        )


def in_place(path: str | Path, flags: int) -> int:
    """An opener for files that are written where they are: no link is followed.

    A folder may come from anybody, and what a link in it leads to is somebody's file
    elsewhere, which is neither emptied nor written to.

    Raises
    ------
    InputError
        Where it is a link.
    """
    # A link may be put there after this look, which systems without the flag overlook.
    refuse_link(Path(path))
    try:
        return os.open(path, flags | getattr(os, "O_NOFOLLOW", 0), 0o666)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.EMLINK):
            refuse_link(Path(path))
        raise


def in_place_or_new(path: str | Path, flags: int) -> int:
    """The same, which makes the file where there is none, whatever the mode."""
    return in_place(path, flags | os.O_CREAT)


def refuse_links(*places: Path) -> None:
    """Refuse links at and below places that we write, copy and remove.

    They may lead anywhere, and a folder that holds them may come from anybody.
    """
    for place in places:
        refuse_link(place)
        for folder, inner, files in os.walk(place):
            for name in (*inner, *files):
                refuse_link(Path(folder, name))


def refuse_link(path: Path) -> None:
    # Before Python 3.12 a junction of Windows is not known.
    if path.is_symlink() or getattr(path, "is_junction", bool)():
        raise InputError(
            f"{path} is a link, and nothing is written where it leads. Put what it "
            "leads to in its place, or remove it."
        )


@contextmanager
def held_by_one(path: Path) -> Iterator[bool]:
    """Hold a lock file; False where another process holds it.

    The system releases the lock when the process ends, however it does. A folder that
    holds anything but files and folders is refused, before anything in it is read.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    for beside in path.parent.iterdir():
        refuse_no_file(beside)
    with FileIO(path, "r+b", opener=in_place_or_new) as file:
        yield lock(file)


if os.name == "nt":
    import msvcrt

    def lock(file: FileIO) -> bool:
        """Lock an open file; False where another process has."""
        # Locked bytes cannot be read by others: take one that no file reaches.
        place = file.tell()
        file.seek(2**62)
        try:
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined]
        except OSError:
            return False
        finally:
            file.seek(place)
        return True

else:
    import fcntl

    def lock(file: FileIO) -> bool:
        """Lock an open file; False where another process has."""
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True
