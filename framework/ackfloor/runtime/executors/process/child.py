"""A handler's process: `python -m ackfloor.runtime.executors.process.child`, started by a worker.

Start and end are here; `child_calls` and `child_batch_calls` handle records.

Only SIGKILL stops it: on Ctrl-C and SIGTERM the worker drains. It logs to the worker's standard
error, by the worker's settings.
"""

from __future__ import annotations

import ctypes
import faulthandler
import logging
import os
import pickle
import queue
import signal
import socket
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any, cast

from ackfloor.app import App, refuse_publish
from ackfloor.declare.codec import make_decoder
from ackfloor.declare.signature import Signature, read_signature, yielded_type
from ackfloor.runtime.calls.invoke import Invocation, bind
from ackfloor.runtime.calls.invoke_batch import bind_batch
from ackfloor.runtime.calls.results import Results
from ackfloor.runtime.calls.tracing import spans_of
from ackfloor.runtime.executors.event_loop import EventLoopThread
from ackfloor.runtime.executors.lifespan import Lifespan
from ackfloor.runtime.executors.process.child_batch_calls import BatchChild
from ackfloor.runtime.executors.process.child_calls import Child
from ackfloor.runtime.executors.process.child_reports import ChildReports
from ackfloor.runtime.executors.process.pipe import receive, send
from ackfloor.runtime.executors.process.shared_progress import SharedProgress
from ackfloor.runtime.executors.process.start_arguments import Plan
from ackfloor.runtime.logging.logs import set_up_logging

log = logging.getLogger("ackfloor.process")

#: Seconds that the lifespan has to exit.
LIFESPAN_S = 5.0
_PR_SET_PDEATHSIG = 1


def _die_with(worker: int) -> None:
    """Die with the worker, whatever a handler is doing."""
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != worker:
        os._exit(1)


def _leave_signals_to_the_worker() -> None:
    def pass_over(_number: int, _frame: object) -> None:
        """Do nothing. Unlike SIG_IGN, a handler's own processes don't inherit this."""

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, pass_over)
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1, all_threads=True)


def _imported(pieces: Mapping[str, bytes]) -> dict[str, Any]:
    """What the worker has sent of the handler, its function first; `report` is for who reports."""
    found = {name: pickle.loads(one) for name, one in pieces.items() if name != "report"}  # noqa: S301 -- sent by the worker
    for name in ("middleware", "dead_letter_on"):
        found[name] = tuple(pickle.loads(one) for one in found[name])  # noqa: S301
    return found


def _begin(
    plan: Plan, events: EventLoopThread, broke: Callable[[BaseException], None]
) -> tuple[Invocation, Lifespan]:
    """Import the handler, and enter the lifespan where the handler takes its state."""
    pieces = _imported(plan["pieces"])
    lifespan = pieces["lifespan"]
    if plan["log"] is not None:
        set_up_logging(*plan["log"])
    signature = read_signature(
        pieces["function"],
        handler=plan["handler"],
        state_type=None if lifespan is None else yielded_type(lifespan),
        batch=plan["batch"],
        results=pieces["to"] is not None,
    )
    app = App(plan["group"], mode=cast("Any", plan["mode"]))
    entered = Lifespan(None if lifespan is None else lambda: lifespan(app), events, broke)
    if lifespan is not None:
        events.start()
    state = entered.enter()
    spans = spans_of(plan["group"], plan["redaction"])
    results = None
    if pieces["to"] is not None:
        # They go to the worker with the answer (`Child`): nothing is written here.
        trace_of = nullcontext if spans is None else spans.trace_of
        results = Results(pieces["to"], app.write, trace_of)
    invocation = _bound(plan, pieces, signature, {"state": state, "results": results})
    if spans is not None:
        invocation = spans.around(invocation, batch=plan["batch"])
    return invocation, entered


def _bound(
    plan: Plan, pieces: Mapping[str, Any], signature: Signature, given: Mapping[str, Any]
) -> Invocation:
    """The handler's call."""
    name, function = plan["handler"], pieces["function"]
    field = f"handlers.{name}.{signature.value_param or 'value'}"
    decode = make_decoder(
        signature.value_type, signature.accepts_null, decoder=pieces["decoder"], field=field
    )
    dead_letter_on = pieces["dead_letter_on"]
    if plan["batch"]:
        return bind_batch(name, function, signature, decode, dead_letter_on=dead_letter_on, **given)
    call = bind(function, signature, decode, middleware=pieces["middleware"], **given)
    return Invocation(name, call, False, False, dead_letter_on)


def _watch_lifespan(broken: queue.SimpleQueue[BaseException], child: Child) -> None:
    """Have the process replaced when its lifespan ends unasked: its state is closed."""
    log.error("the lifespan has ended by itself", exc_info=broken.get())
    child.leave("has lost its lifespan")


def main(argv: Sequence[str]) -> None:
    """Run one process until its worker ends it or is gone."""
    descriptor, area, worker = map(int, argv)
    _die_with(worker)
    _leave_signals_to_the_worker()
    end = socket.socket(fileno=descriptor)
    progress = SharedProgress(area)
    os.close(area)
    first = receive(end)
    if first is None:
        return
    plan: Plan = pickle.loads(first)  # noqa: S301 -- sent by the worker
    sys.path[:] = plan["path"]
    refuse_publish("a process handler can't publish: do it in an async or thread handler")
    events = EventLoopThread()
    broken: queue.SimpleQueue[BaseException] = queue.SimpleQueue()
    try:
        invocation, lifespan = _begin(plan, events, broken.put)
    except BaseException as exc:
        send(end, {"failed": f"{type(exc).__name__}: {exc}"})
        return
    handles = BatchChild if plan["batch"] else Child
    child = handles(
        end,
        progress,
        invocation,
        plan["memory_limit"],
        plan["redaction"],
        exactly_once=plan["exactly_once"],
    )
    child.send(ready=True)
    threading.Thread(target=child.read, name="ackfloor:worker", daemon=True).start()
    watch = partial(_watch_lifespan, broken, child)
    threading.Thread(target=watch, name="ackfloor:lifespan", daemon=True).start()
    reports = ChildReports(child, plan["pieces"]["report"])
    reports.start()
    child.work()
    try:
        lifespan.exit(LIFESPAN_S)
    except BaseException:
        log.exception("handler %s: its lifespan did not shut down cleanly", plan["handler"])
    reports.end()


if __name__ == "__main__":
    main(sys.argv[1:])
    sys.stdout.flush()
    sys.stderr.flush()
    # The user's threads must not keep the process alive.
    os._exit(0)
