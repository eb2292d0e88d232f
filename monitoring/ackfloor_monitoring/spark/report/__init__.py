"""The failure report: from the table `failures` to a page, tables for the terminal, and JSON.

`counts` and `lives` are pure frames over the table; `build` collects them into the plain
`Report` of `answer`, which `page`, `terminal` and its own JSON show.
"""
