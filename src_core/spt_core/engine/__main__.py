"""``python -m spt_core.engine``: first the priority, then the pipe, then torch."""

import argparse
import logging
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from spt_core.engine.priority import lower_priority, sleep_while_waiting

if TYPE_CHECKING:
    from spt_core.engine.channel import Channel


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m spt_core.engine")
    parser.add_argument("--folder", type=Path, required=True, help="for arrays")
    parser.add_argument("--parent", type=int, help="end when this process has ended")
    args = parser.parse_args()
    # Before anything starts a thread: threads inherit it.
    priority = lower_priority()
    sleep_while_waiting()
    # Ctrl+C in a terminal is meant for the window, which ends the engine itself.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING)

    from spt_core import proving
    from spt_core.engine.channel import Channel
    from spt_core.engine.parent import watch_parent
    from spt_core.engine.protocol import VERSION, Starting
    from spt_core.engine.serving import Server

    proving.switch_on()  # a slide must not take the engine down
    channel = Channel.on_standard_streams(args.folder)
    # It may come to the window too, which then removes nothing.
    signal.signal(signal.SIGTERM, lambda *_: _terminated(channel))
    server = Server(channel)
    server.listen()
    if args.parent is not None:
        watch_parent(args.parent, lambda: server.stop(clear=True))
    try:
        channel.send(Starting(VERSION, os.getpid(), priority))

        from spt_core.engine.handlers import Handlers, ready

        handlers = Handlers()
        channel.send(ready())
        if not server.is_asked:
            handlers.warm_up()
        server.serve(handlers)
    except BrokenPipeError:
        server.stop(clear=True)
    server.end()


def _terminated(channel: "Channel") -> None:
    channel.clear()
    os._exit(128 + signal.SIGTERM)


if __name__ == "__main__":
    main()
