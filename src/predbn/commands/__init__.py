"""The command line: one file per command. `predbn.cli` puts them together."""

__all__: list[str] = []
