"""What runs say of themselves: at which addresses, each once, now or a while ago."""
