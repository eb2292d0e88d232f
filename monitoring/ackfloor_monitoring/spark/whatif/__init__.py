"""What another retry policy would have made of the failures that are in the table."""
