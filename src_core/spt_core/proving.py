"""Whether this process reads slides by a helper, which may be lost, or by itself.

openslide crashes on some damaged files. Where a process must not go down with it (the
window, its engine, the commands) it is asked in another one:
``spt_core.slides.guarded_file``.
"""

_is_on = False


def switch_on() -> None:
    """Let a helper open and read what openslide decodes: the window and commands do."""
    global _is_on
    _is_on = True


def switch_off() -> None:
    """Read slides at once: in processes that may be lost, such as workers."""
    global _is_on
    _is_on = False


def is_on() -> bool:
    return _is_on
