"""`ackfloor breaker`: the circuit breakers of a run."""
