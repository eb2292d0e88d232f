"""The dashboard: its panels, and the JSON that Grafana reads."""
