"""Long work of the core is a generator of events; tests run it to its end."""


def run_through(events):
    """All events of a generator, and what it returned."""
    seen = []
    while True:
        try:
            seen.append(next(events))
        except StopIteration as stop:
            return seen, stop.value
