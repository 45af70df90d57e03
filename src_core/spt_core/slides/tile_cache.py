"""A bounded cache of decoded tiles, shared by threads."""

from collections import OrderedDict
from collections.abc import Hashable
from threading import Lock

from spt_core.slides.source import Pixels


class TileCache:
    """Keep the most recently used arrays, up to ``capacity`` bytes."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.size = 0
        self._tiles: OrderedDict[Hashable, Pixels] = OrderedDict()
        self._lock = Lock()

    def get(self, key: Hashable) -> Pixels | None:
        with self._lock:
            tile = self._tiles.get(key)
            if tile is not None:
                self._tiles.move_to_end(key)
            return tile

    def put(self, key: Hashable, tile: Pixels) -> None:
        with self._lock:
            old = self._tiles.pop(key, None)
            self.size += tile.nbytes - (0 if old is None else old.nbytes)
            self._tiles[key] = tile
            while self.size > self.capacity and len(self._tiles) > 1:
                _, dropped = self._tiles.popitem(last=False)
                self.size -= dropped.nbytes
