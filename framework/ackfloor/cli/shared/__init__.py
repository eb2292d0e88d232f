"""Shared by commands: options, tables, times, confirmation, and the address of a run."""
