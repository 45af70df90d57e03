"""Connecting to a running dask scheduler, and what that means for trust."""

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from spt_core.errors import InputError
from spt_core.hints import Hint

_CONNECT_SECONDS = 10.0

TlsCa = Annotated[
    str | None,
    Hint("certificate of who signed the scheduler's, for tls://", metavar="PEM"),
]
TlsCert = Annotated[
    str | None, Hint("certificate to show to the scheduler", metavar="PEM")
]
TlsKey = Annotated[str | None, Hint("key of that certificate", metavar="PEM")]


@dataclass(frozen=True)
class TlsFiles:
    """PEM files by which this computer and the scheduler know each other."""

    ca: Path
    cert: Path
    key: Path

    @classmethod
    def given(
        cls, ca: str | None, cert: str | None, key: str | None
    ) -> "TlsFiles | None":
        """All three or none; a part of them is an error."""
        if not (ca or cert or key):
            return None
        if not (ca and cert and key):
            raise InputError(
                "--tls-ca, --tls-cert and --tls-key belong together: give all three."
            )
        for path in (ca, cert, key):
            if not Path(path).is_file():
                raise InputError(f"There is no file {path}.")
        return cls(Path(ca), Path(cert), Path(key))


@dataclass(frozen=True)
class SchedulerSettings:
    """A running scheduler, and the files of its TLS."""

    scheduler: Annotated[
        str | None,
        Hint(
            "address of a running dask scheduler that shares the work out; whoever "
            "reaches it can run programs as you, unless it has TLS",
            metavar="ADDRESS",
        ),
    ] = None
    tls_ca: TlsCa = None
    tls_cert: TlsCert = None
    tls_key: TlsKey = None

    @property
    def tls(self) -> TlsFiles | None:
        """The files, all three or none; a part of them is an error."""
        return TlsFiles.given(self.tls_ca, self.tls_cert, self.tls_key)


def trust(address: str) -> str | None:
    """What to know of a scheduler without TLS; None where there is nothing."""
    if address.startswith("tls://"):
        return None
    return (
        f"{address} is not protected: whoever reaches a dask scheduler or its workers "
        "can run programs as the people who use it. Use it only in a network where you "
        "trust everybody, or start it with TLS and give tls://HOST:PORT with --tls-ca, "
        "--tls-cert and --tls-key."
    )


def connect(address: str, tls: TlsFiles | None = None) -> Any:
    """A client of a running scheduler."""
    from distributed import Client
    from distributed.security import Security

    if address.startswith("tls://") and tls is None:
        raise InputError(f"{address} needs --tls-ca, --tls-cert and --tls-key.")
    if tls is not None and not address.startswith("tls://"):
        raise InputError(
            f"With TLS the scheduler's address begins with tls://, not as {address}."
        )
    security = None
    if tls is not None:
        security = Security(
            tls_ca_file=str(tls.ca),
            tls_client_cert=str(tls.cert),
            tls_client_key=str(tls.key),
            require_encryption=True,
        )
    # What is lost is said in our own words.
    logging.getLogger("distributed").setLevel(logging.CRITICAL)
    try:
        return Client(address, timeout=_CONNECT_SECONDS, security=security)
    except (OSError, ValueError, TypeError) as error:
        raise InputError(
            f"There is no scheduler at {address} ({error}). Start one with 'dask "
            "scheduler', or use --workers N on this computer."
        ) from error


def lost(address: str) -> InputError:
    """What to say where the connection to a scheduler is gone."""
    return InputError(
        f"The scheduler at {address} was lost. What is done is kept: start it again, "
        "and run the same command again."
    )
