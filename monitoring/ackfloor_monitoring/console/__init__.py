"""The console: what is wrong in a browser, the same facts as on the command line.

`access` decides who may see and do what, `reads` asks runs and Kafka, `pages` makes HTML of the
answers. `web` joins them to an ASGI app, `console_commands` serves it. A request never waits for
Kafka once there is a first answer: reads happen beside it, and a page says how old its facts are.
"""
