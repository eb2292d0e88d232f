"""The dashboard: what it shows, and how Grafana reads it."""
