"""The Kafka client's settings, its errors, and an admin client that says why nobody answers.

Start with `client_options`.
"""
