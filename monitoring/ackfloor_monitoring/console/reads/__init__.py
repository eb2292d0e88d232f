"""What the console shows: read from runs and from Kafka, beside the requests that show it.

`refreshed` keeps the newest answer of a question and asks again when somebody looks; `cluster`
has the questions.
"""
