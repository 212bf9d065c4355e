"""The command line: one file per command or group of commands. `predbn.cli` puts them together.

Commands import the folders that they use inside of their functions, so that `predbn --help` is quick.
"""

__all__: list[str] = []
