# SPDX-License-Identifier: Apache-2.0
"""What the client asks a hub itself: its ``HfApi``, versions, and whom it trusts."""

from __future__ import annotations

import functools
import logging
from typing import TYPE_CHECKING, Any

from kernforge.compat.names import claimed_version
from kernforge.compat.values import KernelDependency, KernelVersion
from kernforge.errors import KernforgeError, RequestError, TrustError, UsageError
from kernforge.loader.host import probe, told
from kernforge.loader.search import Search, check_request, local_override
from kernforge.registry.api import open_default, open_registry
from kernforge.registry.hub_client import library
from kernforge.registry.hub_endpoint import find
from kernforge.registry.names import majors
from kernforge.system.environment import Environment

if TYPE_CHECKING:
    from kernforge.registry.api import Registry

log = logging.getLogger("kernels._versions")

CACHE_DIR = Environment.live().kernels_cache
"""``KERNELS_CACHE`` when this module was imported; what loads kernels reads it at each call."""


def cache_dir() -> str | None:
    """``KERNELS_CACHE``."""
    return Environment.live().kernels_cache


def platform() -> str:
    """CPU and operating system as variants name them, such as ``x86_64-linux``."""
    host = probe("cpu")
    return f"{host.cpu}-{host.os}"


def user_agent_of(user_agent: str | dict[str, str] | None) -> str:
    """What ``kernels`` would say of this process in the header ``User-Agent``.

    kernforge itself sends it only where ``KERNFORGE_USER_AGENT`` is 1.
    """
    return told(user_agent, f"kernels/{claimed_version(Environment.live())}")


def get_hf_api(user_agent: str | dict[str, str] | None = None) -> Any:
    """The ``HfApi`` for code that uses the client's own; kernforge makes its requests itself."""
    hub = library()
    from huggingface_hub import constants  # noqa: PLC0415 - an extra

    said = "" if constants.HF_HUB_DISABLE_TELEMETRY else user_agent_of(user_agent)
    return hub.HfApi(
        library_name="kernels",
        library_version=claimed_version(Environment.live()),
        user_agent=said,
    )


def revision_or_version(*, revision: str | None, version: int | None) -> KernelVersion:
    """The one of both that is given."""
    check_request(version, revision)
    if revision is not None:
        return KernelVersion.Revision(revision)
    return KernelVersion.Version(int(version or 0))


def absent_errors() -> tuple[type[Exception], ...]:
    """What an ``HfApi`` raises for a file or a repository that is not there."""
    library()
    from huggingface_hub import errors  # noqa: PLC0415 - an extra

    return (errors.EntryNotFoundError, errors.RepositoryNotFoundError)


def registry(*, local_files_only: bool = False) -> Registry:
    """The hub, or what is on this machine of it."""
    opened = open_registry("hf://", Environment.read())
    return opened.offline() if local_files_only else opened


def search() -> Search:
    """Where kernels are found after their publishers were asked about, as the client does first."""
    return Search(registry(), None, Environment.read(), trust_remote_code=True)


def available_versions(repo_id: str, *, local_files_only: bool) -> dict[int, Any]:
    """The major versions of a kernel, each as a ``GitRefInfo``."""
    library()
    from huggingface_hub.hf_api import GitRefInfo  # noqa: PLC0415 - an extra

    source = registry(local_files_only=local_files_only)
    found = {}
    for version in majors(source.ref_names(repo_id)):
        name = f"v{version}"
        commit = source.ref(repo_id, name)
        found[version] = GitRefInfo(name=name, ref=f"refs/heads/{name}", target_commit=commit)
    return found


def resolve_version_spec_as_ref(
    repo_id: str,
    version_spec: int,
    local_files_only: bool | None = None,  # noqa: FBT001 - the client's signature
) -> Any:
    """The branch of a major version, as a ``GitRefInfo``.

    Args:
        local_files_only: whether no hub is asked; None, as before 0.17, takes the process's mode.
    """
    if local_files_only is None:
        local_files_only = is_offline()
    versions = available_versions(repo_id, local_files_only=local_files_only)
    ref = versions.get(version_spec)
    if ref is None and local_files_only and not versions:
        raise RequestError(
            f"Version {version_spec} of '{repo_id}' is not available in the local cache and "
            "Hugging Face Hub is in offline mode.",
            hint="download it while online, or pass revision=<commit>",
        )
    if ref is None:
        listed = ", ".join(map(str, sorted(versions)))
        raise RequestError(f"Version {version_spec} not found, available versions: {listed}")
    warn_if_outdated(repo_id, version_spec)
    return ref


def warn_if_outdated(repo_id: str, version: int) -> None:
    """Log that a newer major version is published.

    The client warns at each load. kernforge does not: an application pins a major version because
    the next one may break it.
    """
    if local_override(Environment.live(), repo_id) is not None:
        return
    found = majors(open_default(Environment.read()).ref_names(repo_id))
    newest = max(found, default=version)
    if newest > version:
        log.warning(
            "You are using version %d of '%s', but version %d is available.",
            version,
            repo_id,
            newest,
        )


@functools.cache
def _hub_class(kind: Any, theirs: str) -> Any:
    """A class of our error and of one of ``huggingface_hub``."""
    library()
    from huggingface_hub import errors  # noqa: PLC0415 - an extra

    def show(error: Any) -> str:
        return str(KernforgeError.__str__(error))

    bases = (kind, getattr(errors, theirs))
    return type(f"Hub{kind.__name__}", bases, {"__str__": show, "__module__": __name__})


def missing_error(error: KernforgeError, theirs: str = "RepositoryNotFoundError") -> Any:
    """The error as one that is also an ``HfHubHTTPError``, as the client raises it.

    A response of the hub is not attached: ``response`` is None.

    Args:
        theirs: the class of ``huggingface_hub.errors``.
    """
    try:
        ours: Any = type(error)
        kind = _hub_class(ours, theirs)
    except UsageError:  # huggingface_hub is not installed: a caller cannot catch its errors
        return error
    found = kind(error.message, hint=error.hint)
    for name in ("response", "server_message", "request_id", "request"):
        found.__dict__.setdefault(name, None)
    return found


def resolve_kernel_version(kernel: KernelDependency, local_files_only: bool) -> str:  # noqa: FBT001 - the client's signature
    """The commit or revision of a requirement."""
    depend = kernel.ours
    return select_revision_or_version(
        kernel.repo_id,
        revision=depend.revision,
        version=depend.version,
        local_files_only=local_files_only,
    )


def select_revision_or_version(
    repo_id: str,
    *,
    revision: str | None,
    version: int | None,
    local_files_only: bool | None = None,
) -> str:
    """A revision as it is, or the commit of a version."""
    check_request(version, revision)
    if revision is not None:
        return revision
    ref = resolve_version_spec_as_ref(repo_id, int(version or 0), local_files_only)
    return str(ref.target_commit)


def check_trust_remote_code(
    repo_id: str,
    local_files_only: bool,  # noqa: FBT001 - the client's signature
    trust_remote_code: bool | list[str],  # noqa: FBT001
) -> None:
    """Refuse a kernel whose publisher the hub does not vouch for, unless the caller trusts it."""
    if trust_remote_code is True or local_files_only:
        return
    if isinstance(trust_remote_code, list) and repo_id in trust_remote_code:
        return
    allow = (
        "Set trust_remote_code=True or add the repository ID to the trust_remote_code allowlist to "
        "allow loading kernels from untrusted sources."
    )
    try:
        # An owner that the hub does not know is an error here, as in the client.
        owner = get_hf_api().get_organization_overview(repo_id.partition("/")[0])
    except Exception as error:
        raise TrustError(
            f"Kernel repository '{repo_id}' could not verify publisher trust status. {allow}"
        ) from error
    if not getattr(owner, "trustedKernelPublisher", False):
        raise TrustError(f"Kernel repository '{repo_id}' is not from a trusted publisher. {allow}")


def is_offline() -> bool:
    """Whether no hub is asked: by a variable, or as a program set it in ``huggingface_hub``."""
    library()
    from huggingface_hub import constants  # noqa: PLC0415 - an extra

    return find("hf://", Environment.read()).offline or bool(constants.HF_HUB_OFFLINE)
