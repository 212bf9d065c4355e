"""The command line: one file per command or group of commands. `app.py` puts them together, and `predbn.cli` runs them.

Commands import the folders that they use inside of their functions, so that `predbn --help` is quick.
"""

__all__: list[str] = []
