# SPDX-License-Identifier: Apache-2.0
"""Which connections of a farm are allowed: TLS, or plain ones that do not leave this machine.

A task is code: whoever can connect to a scheduler runs programs on all workers. So a plain
connection beyond this machine is refused, unless the user says that the network is trusted.
"""

from __future__ import annotations

import ipaddress
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from kernforge.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from kernforge.build.cluster.certificates import Pair
    from kernforge.system.environment import Environment

TRUSTED = "network"
"""Value of ``KERNFORGE_FARM_TRUST``: whoever reaches the network may run programs on the farm."""
_ENCRYPTED = ("tls", "wss")
_PROTOCOLS = (*_ENCRYPTED, "tcp", "ws", "ucx", "ucxx")
_MAX_PORT = 65535
_HINT = (
    "make certificates with `kernforge farm init` and use tls://; or, if everybody who reaches "
    "that network may run programs on all machines of the farm, --trusted-network"
)

_ADDRESS_HINT = "give the one that `kernforge farm scheduler` listens at, such as tls://farm:8786"


@dataclass(frozen=True, slots=True)
class FarmAccess:
    """How this machine takes part in a farm.

    Attributes:
        pair: its certificate; None where it has none.
        trusted: whether plain connections beyond this machine are allowed.
    """

    pair: Pair | None = None
    trusted: bool = False

    def security(self) -> Any:
        """What a ``distributed.Client`` is given; None leaves it to Dask's own configuration."""
        if self.pair is None:
            return None
        from distributed.security import Security  # noqa: PLC0415 - only a cluster needs it

        return Security(
            tls_ca_file=str(self.pair.authority),
            tls_client_cert=str(self.pair.certificate),
            tls_client_key=str(self.pair.key),
            require_encryption=False,  # plain addresses are judged by ``require_private``
        )


def access(environment: Environment, role: str, *, trusted: bool = False) -> FarmAccess:
    """How this machine takes part in a farm in a role.

    Args:
        trusted: whether the user said that the network is trusted; ``KERNFORGE_FARM_TRUST`` says so
            too.

    Raises:
        UsageError: a certificate has expired or is incomplete, or the variable has another value.
    """
    said = environment.kernforge_farm_trust
    if said not in {None, "", TRUSTED}:
        raise UsageError(
            f"KERNFORGE_FARM_TRUST is {said!r}", hint=f"it can only be {TRUSTED!r}, or not set"
        )
    from kernforge.build.cluster import certificates  # noqa: PLC0415 - only a farm needs it

    where = certificates.directory(environment)
    return FarmAccess(pair=certificates.pair(where, role), trusted=trusted or said == TRUSTED)


def full_address(address: str) -> str:
    """An address with its protocol: TLS where it names none."""
    return address if "://" in address else f"tls://{address}"


def scheduler_address(given: str) -> str:
    """The full address of a scheduler that a user named.

    Raises:
        UsageError: it is not ``PROTOCOL://HOST:PORT``.
    """
    if mistake := _mistake(given):
        raise UsageError(
            f"{given!r} is no address of a Dask scheduler: {mistake}", hint=_ADDRESS_HINT
        )
    return full_address(given)


def _mistake(given: str) -> str:
    """What is wrong with an address, in words; empty where nothing is."""
    if not given.strip():
        return "it is empty"
    if given.split() != [given]:
        return "it has a space"
    address = full_address(given)
    protocol = address.partition("://")[0]
    if protocol not in _PROTOCOLS:
        return f"its protocol is {protocol!r}, and not one of {', '.join(_PROTOCOLS)}"
    try:
        parts = urlsplit(address)
        port = parts.port
    except ValueError:  # also of an IPv6 address without its brackets
        port, parts = 0, urlsplit("")
    if parts.path or parts.query or parts.fragment or "@" in parts.netloc or "," in parts.netloc:
        return "it has more than a protocol, a host and a port"
    if port is None:
        return "it has no port"
    if not 0 < port <= _MAX_PORT:
        return f"its port is no number from 1 to {_MAX_PORT}"
    if not parts.hostname:
        return "it has no host"
    return ""


def require_name(address: str) -> None:
    """Refuse an address whose host has a name that leads nowhere.

    Raises:
        UsageError: the name cannot be resolved.
    """
    from distributed.comm import resolve_address  # noqa: PLC0415 - only a cluster needs it

    try:
        resolve_address(address)
    except (OSError, UnicodeError) as error:
        said = getattr(error, "strerror", None) or error
        raise UsageError(
            f"the name {urlsplit(address).hostname!r} of a Dask scheduler cannot be resolved: {said}",
            hint=f"look for a mistake in {address}, or give an IP address",
        ) from error


def is_private(address: str) -> bool:
    """Whether a connection to an address is encrypted, or does not leave this machine."""
    parts = urlsplit(full_address(address))
    if parts.scheme in {*_ENCRYPTED, "inproc"}:
        return True
    host = parts.hostname or ""
    if host == "localhost":
        return True
    try:
        found = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:  # a name may lead anywhere
        return False
    mapped = getattr(found, "ipv4_mapped", None)
    return (mapped or found).is_loopback


def require_private(addresses: Iterable[str], farm: FarmAccess) -> None:
    """Refuse plain connections beyond this machine, unless the network is trusted.

    Raises:
        UsageError: one of the addresses is such a connection.
    """
    if farm.trusted:
        return
    for address in addresses:
        if not is_private(address):
            raise UsageError(
                f"{address} is a plain connection: whoever reaches it can run programs on the farm",
                hint=_HINT,
            )


def require_private_worker(environment: Environment) -> None:
    """Refuse work on a worker with plain connections; nothing where no worker calls this.

    Raises:
        UsageError: its connections leave the machine and are plain, and nothing says that this is
            right.
    """
    if worker := this_worker():
        trusted = environment.kernforge_farm_trust == TRUSTED
        require_private((worker.address, worker.scheduler.address), FarmAccess(trusted=trusted))


def this_worker() -> Any | None:
    """The Dask worker on which this is called; None elsewhere, as in a test."""
    from distributed import get_worker  # noqa: PLC0415 - only a cluster has it

    try:
        return get_worker()
    except ValueError:
        return None


# -- what starts schedulers and workers ------------------------------------------------------------


def scheduler_command(
    farm: FarmAccess, *, host: str, port: int, more: Sequence[str]
) -> tuple[tuple[str, ...], dict[str, str]]:
    """Arguments and added variables of a Dask scheduler.

    Args:
        host: the address to listen at; empty means every one of this machine.
        more: options for ``dask scheduler``.

    Raises:
        UsageError: it would listen beyond this machine without TLS.
    """
    protocol = "tls" if farm.pair else "tcp"
    if not farm.pair:
        # Without a host it listens everywhere.
        require_private([f"tcp://{host or '0.0.0.0'}:{port}"], farm)  # noqa: S104 - it is refused
    argv = [*_dask("scheduler"), "--protocol", protocol, "--port", str(port)]
    argv += ["--host", host] if host else []
    shown, hidden = _pages("scheduler", more)
    return (*argv, *shown, *more), _variables(farm, "scheduler") | hidden


def worker_command(
    farm: FarmAccess, address: str, *, more: Sequence[str]
) -> tuple[tuple[str, ...], dict[str, str]]:
    """Arguments and added variables of a Dask worker.

    Args:
        address: the scheduler's.
        more: options for ``dask worker``.

    Raises:
        UsageError: it is no address; or the connection would be plain and leave this machine, or
            there is no certificate.
    """
    address = scheduler_address(address)
    require_private([address], farm)
    require_pair(address, farm)
    argv = [*_dask("worker"), address]
    shown, hidden = _pages("worker", more)
    variables = _variables(farm, "worker", encrypt=address.startswith("tls:"))
    return (*argv, *shown, *more), variables | hidden


def require_pair(address: str, farm: FarmAccess) -> None:
    """Refuse an address that needs a certificate where there is none.

    Raises:
        UsageError: there is none, neither of kernforge nor in Dask's configuration.
    """
    if not address.startswith("tls:") or farm.pair:
        return
    import dask  # noqa: PLC0415 - only a cluster needs it
    import distributed  # noqa: F401, PLC0415 - it sets Dask's defaults

    if not dask.config.get("distributed.comm.tls.ca-file", None):
        raise UsageError(
            f"{address} needs a certificate, and this machine has none",
            hint="`kernforge farm init` makes them; copy them from where it was run, to "
            "~/.config/kernforge/farm or the directory that KERNFORGE_FARM names",
        )


def _dask(command: str) -> tuple[str, ...]:
    return (sys.executable, "-m", "dask", command)


def _pages(role: str, more: Sequence[str]) -> tuple[tuple[str, ...], dict[str, str]]:
    """Options and variables that hide what Dask shows in a browser, unless ``more`` asks for it.

    Dask serves it by plain HTTP, to everybody. ``--no-dashboard`` leaves out the figures alone: pages
    of calls, logs and tasks stay, on every address of the machine.
    """
    if any("dashboard" in word and word != "--no-dashboard" for word in more):
        return (), {}
    routes = f"DASK_DISTRIBUTED__{role.upper()}__HTTP__ROUTES"
    return (
        ("--no-dashboard", "--dashboard-address", "127.0.0.1:0"),
        {routes: "['distributed.http.health']"},
    )


def _variables(farm: FarmAccess, role: str, *, encrypt: bool = True) -> dict[str, str]:
    """Dask's configuration as variables, which its child processes inherit."""
    added = {"KERNFORGE_FARM_TRUST": TRUSTED} if farm.trusted else {}
    if farm.pair is None or not encrypt:
        return added
    comm = "DASK_DISTRIBUTED__COMM__"
    return added | {
        f"{comm}REQUIRE_ENCRYPTION": "True",
        f"{comm}TLS__CA_FILE": str(farm.pair.authority),
        f"{comm}TLS__{role.upper()}__CERT": str(farm.pair.certificate),
        f"{comm}TLS__{role.upper()}__KEY": str(farm.pair.key),
    }
