"""What outputs cost in each mode; see `__main__`."""
