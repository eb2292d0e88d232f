"""The soak: a ledger, real workers and brokers, faults drawn at random, and an oracle at the end.

`python -m tests.soak --minutes 10 --seed 7` (`make soak MINUTES=10 SEED=7`). One file each:

* `plan`     what a run is made of: topics, rates, the seed, the folder
* `ledger`   what handlers write down outside their process, and how it is read back
* `app`      the workers' app: handlers that misbehave as their record says
* `producer` numbered records for each key, in transactions too, and what was acknowledged
* `proxy`    a loopback proxy for each broker, which delays, cuts and half-closes
* `fleet`    the `ackfloor run` processes
* `cluster`  the brokers as the soak uses them: topics, commits, ends, dead letters
* `commit_log` the commits as they were written, in order
* `faults`   what can be done to a run; `injector` draws from them and keeps the list
* `sampler`  commits, lag, gaps and memory over time
* `oracle`   pure: facts in, findings out; `floors` is its rule about commits
* `report`, `plot`  the table and the picture
* `run`      a soak from its start to its verdict
"""
