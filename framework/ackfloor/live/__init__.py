"""Settings that change while a run runs: read and checked in the supervisor, applied in workers."""
