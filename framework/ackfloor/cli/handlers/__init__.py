"""`ackfloor handlers`: how the handlers of runs are, and what pauses and resumes them."""
