"""The engine survives any line, and answers it."""

import io
import json

from spt_core.engine.channel import LONGEST, Channel
from spt_core.engine.codec import decode
from spt_core.engine.protocol import Failed, Stop
from tests.attack.engine_lines import lines

STOP = b'{"id": null, "type": "Stop", "value": {}}\n'


def said(tmp_path, *sent):
    """What is understood of lines, and the replies to the others."""
    replies = io.BytesIO()
    channel = Channel(tmp_path, io.BytesIO(b"".join(sent)), replies)
    understood = list(channel.receive())
    answers = [decode(one, None) for one in replies.getvalue().splitlines()]
    return understood, answers


def test_every_line_is_understood_or_answered(tmp_path):
    sent = list(lines(seed=0, count=300))
    understood, answers = said(tmp_path, *sent, STOP)
    assert understood[-1] == (None, Stop())
    assert len(understood) - 1 + len(answers) == len(sent)
    assert all(isinstance(message, Failed) for _, message in answers)
    assert len(answers) > 200


def test_an_endless_line_is_let_pass(tmp_path):
    understood, answers = said(tmp_path, b"x" * (LONGEST + 10), b"\n", STOP)
    assert [message for _, message in understood] == [Stop()]
    assert "longer than" in answers[0][1].reason


def test_an_answer_names_its_request(tmp_path):
    line = json.dumps({"id": 7, "type": "Cancel", "value": {"request": "x"}}) + "\n"
    _, answers = said(tmp_path, line.encode())
    assert [number for number, _ in answers] == [7]
