"""Decoding of values written through a schema registry: Avro, Protobuf and JSON Schema.

Start with `schema_decoder`.
"""
