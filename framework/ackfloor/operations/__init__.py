"""Operations: what operators do to runs and dead letters, noted where everybody can read it.

The one way to act. The command line and the console stand on it: what the one has done, the other
shows. It has four parts, and a family of actions (dead letters) moves here part by part; those of
handlers (`HandlerPause`, `HandlerBreaker`), lanes (`LaneMove`), retry topics (`RetryMove`) and
settings (`SettingChange`) are here:

* read: what a run says (`ask_state`, `ask_settings`); no note is written.
* judge: a dry run, with the count of what would be done (`LaneMove.judge`); no note is written.
* act: done under `noted`, with who, from where, what, why and a correlation id.
* audit: `ActionLog`, which writes and reads these notes.

An order to runs, and the newest notes of all that was done:

    from ackfloor.operations import LaneAction, LaneMove, Runs, new_note, noted

    runs = Runs({"127.0.0.1:9600": token})
    move = LaneMove(LaneAction.RETRY, "bill", {"all": True})
    print(move.judge(runs).done)
    note = new_note(move.name, "our tool", by="ann@ops-1", targets=["bill"])
    with noted(note, ActionLog(kafka_options()).write) as ending:
        print(move.act(runs, ending).counts)

    from ackfloor.operations import ActionFilter, ActionLog
    from ackfloor.redrive import kafka_options

    for note in ActionLog(kafka_options()).newest(ActionFilter(by="ann"), limit=20):
        print(note.by, note.action, note.targets, note.state)

Invariants. A note holds no payload and no secret, and of keys and headers what `[redaction]`
leaves. It says done only where all that was meant was reached. Who acts decides what a note that
can't be written means: the command line warns and acts all the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

# At once: it is named like its module, which is an attribute of this package from its import on.
from ackfloor.operations.noted import Ending, new_note, noted

if TYPE_CHECKING:
    from ackfloor.core.messages.lane_order import Action as LaneAction
    from ackfloor.dead_letters.rules.waiting import ChosenWaiting
    from ackfloor.live.breaker_orders import Action as BreakerAction
    from ackfloor.live.pause_orders import PauseAction
    from ackfloor.live.retry_orders import Action as RetryAction
    from ackfloor.operations.action_log import ActionLog
    from ackfloor.operations.action_notes import (
        TOPIC,
        ActionFilter,
        ActionNote,
        ActionState,
        redacted,
    )
    from ackfloor.operations.effective_settings import (
        EffectiveSettings,
        SettingValue,
        ask_settings,
    )
    from ackfloor.operations.handler_breakers import BreakerOutcome, HandlerBreaker
    from ackfloor.operations.handler_pauses import HandlerPause, PauseOutcome
    from ackfloor.operations.lane_moves import LaneMove, LaneOutcome
    from ackfloor.operations.retry_moves import RetryMove, RetryOutcome
    from ackfloor.operations.run_client import ControlFailed, ask_state
    from ackfloor.operations.run_tls import Trust
    from ackfloor.operations.runs import Runs
    from ackfloor.operations.setting_changes import ChangeOutcome, SettingChange

__all__ = [
    "TOPIC",
    "ActionFilter",
    "ActionLog",
    "ActionNote",
    "ActionState",
    "BreakerAction",
    "BreakerOutcome",
    "ChangeOutcome",
    "ChosenWaiting",
    "ControlFailed",
    "EffectiveSettings",
    "Ending",
    "HandlerBreaker",
    "HandlerPause",
    "LaneAction",
    "LaneMove",
    "LaneOutcome",
    "PauseAction",
    "PauseOutcome",
    "RetryAction",
    "RetryMove",
    "RetryOutcome",
    "Runs",
    "SettingChange",
    "SettingValue",
    "Trust",
    "ask_settings",
    "ask_state",
    "new_note",
    "noted",
    "redacted",
]

#: Name -> the module that has it, and its name there: what a caller does not use is not imported.
_LAZY = {
    "TOPIC": ("ackfloor.operations.action_notes", "TOPIC"),
    "ActionFilter": ("ackfloor.operations.action_notes", "ActionFilter"),
    "ActionLog": ("ackfloor.operations.action_log", "ActionLog"),
    "ActionNote": ("ackfloor.operations.action_notes", "ActionNote"),
    "ActionState": ("ackfloor.operations.action_notes", "ActionState"),
    "BreakerAction": ("ackfloor.live.breaker_orders", "Action"),
    "BreakerOutcome": ("ackfloor.operations.handler_breakers", "BreakerOutcome"),
    "ChangeOutcome": ("ackfloor.operations.setting_changes", "ChangeOutcome"),
    "ChosenWaiting": ("ackfloor.dead_letters.rules.waiting", "ChosenWaiting"),
    "ControlFailed": ("ackfloor.operations.run_client", "ControlFailed"),
    "EffectiveSettings": ("ackfloor.operations.effective_settings", "EffectiveSettings"),
    "HandlerBreaker": ("ackfloor.operations.handler_breakers", "HandlerBreaker"),
    "HandlerPause": ("ackfloor.operations.handler_pauses", "HandlerPause"),
    "LaneAction": ("ackfloor.core.messages.lane_order", "Action"),
    "LaneMove": ("ackfloor.operations.lane_moves", "LaneMove"),
    "LaneOutcome": ("ackfloor.operations.lane_moves", "LaneOutcome"),
    "PauseAction": ("ackfloor.live.pause_orders", "PauseAction"),
    "PauseOutcome": ("ackfloor.operations.handler_pauses", "PauseOutcome"),
    "RetryAction": ("ackfloor.live.retry_orders", "Action"),
    "RetryMove": ("ackfloor.operations.retry_moves", "RetryMove"),
    "RetryOutcome": ("ackfloor.operations.retry_moves", "RetryOutcome"),
    "Runs": ("ackfloor.operations.runs", "Runs"),
    "SettingChange": ("ackfloor.operations.setting_changes", "SettingChange"),
    "SettingValue": ("ackfloor.operations.effective_settings", "SettingValue"),
    "Trust": ("ackfloor.operations.run_tls", "Trust"),
    "ask_settings": ("ackfloor.operations.effective_settings", "ask_settings"),
    "ask_state": ("ackfloor.operations.run_client", "ask_state"),
    "redacted": ("ackfloor.operations.action_notes", "redacted"),
}


if not TYPE_CHECKING:
    # A type checker that saw this would take every misspelt name for one of these.
    def __getattr__(name: str) -> Any:
        if name not in _LAZY:
            raise AttributeError(f"module 'ackfloor.operations' has no attribute {name!r}")
        from importlib import import_module

        module, own = _LAZY[name]
        return getattr(import_module(module), own)


def __dir__() -> list[str]:
    return __all__
