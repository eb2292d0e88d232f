"""The rules: pure, without I/O, threads, clocks, logging or randomness; stdlib only."""
