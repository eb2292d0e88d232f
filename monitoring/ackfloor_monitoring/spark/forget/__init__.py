"""Forgetting: records are erased from the table of failures, in its old files as well."""
