"""The actions topic on the broker: created, written, and read from its newest record back.

Imports the clients' options and how dead letters are read; start at `action_topic`.
"""
