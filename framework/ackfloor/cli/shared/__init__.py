"""What commands share: options, tables, times, questions, and the address of a run."""
