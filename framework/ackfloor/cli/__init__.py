"""The command line: one file per command group; `main.py` puts them together."""
