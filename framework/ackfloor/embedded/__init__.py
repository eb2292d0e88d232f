"""A worker inside a program that does other work: `App.running`, and its pages as an ASGI app.

Part of the composition root, like `ackfloor.worker`. Start reading in `running.py`.
"""
