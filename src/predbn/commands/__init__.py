"""Commands that need several rooms; those of one room are in it, as `command.py`."""
