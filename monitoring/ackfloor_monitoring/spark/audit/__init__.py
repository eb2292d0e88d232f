"""The audit: whether the table of failures is without gaps and doubles."""
