"""quixstreams: a dataframe with one `update`, bytes in, committing every five seconds (default)."""

from __future__ import annotations

import tempfile

from quixstreams import Application

from benchmarks.peers.work import Work


def main() -> None:
    """Run the application until killed."""
    work = Work()
    handle = work.handler()
    with tempfile.TemporaryDirectory() as state:
        app = Application(
            broker_address=work.servers,
            consumer_group=work.group,
            auto_offset_reset="earliest",
            loglevel="ERROR",
            state_dir=state,
        )
        frame = app.dataframe(app.topic(work.topic, value_deserializer="bytes"))
        frame.update(handle)
        app.run()


if __name__ == "__main__":
    main()
