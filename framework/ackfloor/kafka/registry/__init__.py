"""Values that were written through a schema registry: Avro, Protobuf and JSON Schema.

Start with `schema_decoder`.
"""
