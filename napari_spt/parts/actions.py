"""Named actions with keys, which napari lists in its settings to be changed."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from napari.components import ViewerModel
from napari.settings import get_settings
from napari.utils.action_manager import action_manager


@dataclass(frozen=True)
class Action:
    """What a key does to a viewer, in words, and the key unless users take another."""

    run: Callable[..., Any]
    words: str
    key: str


_registered: set[str] = set()


def register_actions(actions: Mapping[str, Action]) -> None:
    """Bind keys, once each; the user's own keys win over ours."""
    chosen = get_settings().shortcuts.shortcuts
    for name, action in actions.items():
        if name in _registered:
            continue
        _registered.add(name)
        action_manager.register_action(name, action.run, action.words, ViewerModel)
        for key in chosen.get(name) or [action.key]:
            action_manager.bind_shortcut(name, key)
