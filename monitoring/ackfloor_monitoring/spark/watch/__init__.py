"""The watch: ingest as a stream that is measured, and whose failures are looked at as they come."""
