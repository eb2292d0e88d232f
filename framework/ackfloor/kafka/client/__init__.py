"""The Kafka client's settings, its errors, and an admin client that says why no broker answers.

Start with `client_options`.
"""
