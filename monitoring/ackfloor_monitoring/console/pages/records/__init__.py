"""Records: the way of one record, from its source topic to what became of it."""
