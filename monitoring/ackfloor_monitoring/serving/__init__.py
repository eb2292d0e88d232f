"""The run's address: an HTTP server with `/metrics`, `/livez`, `/readyz` and `/state`."""
