"""The report as one HTML page: sections, charts and the colours of both."""
