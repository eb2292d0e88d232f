"""The index: what dead-letter and retry topics say, in a file of this machine that can be searched.

Kafka can only be read from front to back, which takes minutes for a million dead letters. The index
is a copy that can be thrown away: `follower` reads the topics on, `index_rows` takes from a record
what is searched, `index_writer` writes it, `index_search` answers for dead letters, and
`record_history` for all that became of one record. Payloads are never in it, nor is anything that
`[redaction]` takes away.
"""
