"""A realistic month of failures, from a seed: for benchmarks, report screenshots and tests.

`scenario` says what goes wrong, `month` plays it through the retry policy, `rows` writes what
comes out as the failure table's rows, `produce` sends it to a broker.
"""
