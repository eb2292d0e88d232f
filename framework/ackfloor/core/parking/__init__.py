"""From a failed delivery to the record that is written to a retry topic or the dead-letter topic.

Imports `values` and `records`. Start with `parking`; `topic_names` has the names of the topics.
"""
