"""``spt doctor``: a self-test of this computer, to paste into a bug report."""

import argparse
from collections import Counter

from spt_core.commands.console import Console
from spt_core.events import event_record
from spt_core.self_test import Finding, Status, examine


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = (
        "Takes about a minute, sends nothing anywhere, and prints neither user names "
        "nor folders of yours. Exit code 1 if something failed."
    )


def run(args: argparse.Namespace, console: Console) -> int:
    count: Counter[Status] = Counter()
    for finding in examine():
        count[finding.status] += 1
        console.record(event_record(finding))
        for line in _lines(finding):
            console.say(line)
    totals = {str(status): count[status] for status in Status}
    console.record({"event": "summary", **totals})
    console.say(", ".join(f"{number} {status}" for status, number in totals.items()))
    return 1 if count[Status.FAILED] else 0


def _lines(finding: Finding) -> list[str]:
    lines = [f"{finding.status:<9} {finding.check:<24} {finding.found}"]
    if finding.advice:
        lines.append(f"{'':<34} -> {finding.advice}")
    return lines
