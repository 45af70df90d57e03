"""A workaround: dask looks for a cluster before it computes anything.

Versions: dask 2023.1 to 2026.8, the newest at the time.
Upstream problem: ``get_scheduler`` imports ``distributed`` to ask for a client where no
scheduler is configured, and even for the configured name "threads": nearly a second
during which the first slide is not shown.
"""

import sys

import dask
import dask.base
import dask.threaded


def use_threads_by_default() -> None:
    """Configure dask's own default, threads, so that it need not look for a cluster.

    A cluster that exists, or is started later, is still used: its client configures
    itself. A scheduler that the user configured stays.
    """
    if (
        imports_distributed()
        and "distributed" not in sys.modules
        and dask.config.get("scheduler", None) is None
    ):
        dask.config.set(scheduler=dask.threaded.get)


def imports_distributed() -> bool:
    """Whether this dask imports distributed to choose a scheduler."""
    return "distributed" in dask.base.get_scheduler.__code__.co_names
