"""The references in docs/reference, written from the code."""
