"""What is counted of each day, kept beside the table: the next report adds the days up."""
