"""The watch: ingest as a stream with metrics, and alerts on new and surging failures."""
