"""What an admin does with a single dead letter: reveals all of it, and corrects its payload."""
