"""A store for tests."""

from predbn.norm import SavedStream


class MemoryStore(dict):
    """The smallest store."""

    def put(self, name: object, saved: SavedStream) -> None:
        self[name] = saved

    def remove(self, name: object) -> bool:
        return self.pop(name, None) is not None

    def claim(self, owner: object) -> None:
        pass
