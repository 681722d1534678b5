# SPDX-License-Identifier: Apache-2.0
"""Compile sources for this process and import them: ``load`` and ``load_inline``.

Both take the arguments of ``torch.utils.cpp_extension`` (2.13). The store keeps the results of all
processes; a call with unchanged sources costs a look at the files. An edit gives a new module, and
objects of the old one stay valid.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeGuard

from kernforge.builder import results
from kernforge.errors import UsageError
from kernforge.extension import (
    flags,
    inline,
    loading,
    machine,
    make,
    request as jit_request,
    session as jit_session,
)
from kernforge.extension.plan import Extension
from kernforge.extension.request import Tree, check_module, content_key, read_extension
from kernforge.extension.session import CachedModule, JitSession, LoadedModule
from kernforge.system import digest, files
from kernforge.system.console import Console


def load(  # noqa: PLR0917 - torch's signature
    name: str | os.PathLike[str],
    sources: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | None = None,
    extra_cflags: Sequence[str] | None = None,
    extra_cuda_cflags: Sequence[str] | None = None,
    extra_sycl_cflags: Sequence[str] | None = None,
    extra_ldflags: Sequence[str] | None = None,
    extra_include_paths: Sequence[str] | None = None,
    build_directory: str | os.PathLike[str] | None = None,
    verbose: bool = False,  # noqa: FBT001, FBT002 - torch's signature
    with_cuda: bool | None = None,  # noqa: FBT001
    with_sycl: bool | None = None,  # noqa: FBT001
    is_python_module: bool = True,  # noqa: FBT001, FBT002
    is_standalone: bool = False,  # noqa: FBT001, FBT002
    keep_intermediates: bool = True,  # noqa: ARG001, FBT001, FBT002 - the store keeps or drops them
) -> Any:
    """Compile sources and load the module; or build and load a kernel project.

    The arguments are those of ``torch.utils.cpp_extension.load``. ``load(directory)`` builds the
    project in that directory for this process's torch and GPU.

    Args:
        name: the module's name; the directory of a project if there are no sources.
        sources: paths of C++ (``.cpp``, ``.cc``, ...) and CUDA (``.cu``) sources.
        extra_cflags: for the C++ compiler.
        extra_cuda_cflags: for nvcc.
        extra_sycl_cflags: refused: kernforge compiles no SYCL.
        extra_ldflags: for the linker.
        extra_include_paths: directories in which headers are looked for.
        build_directory: also put the shared object here, as ``<name>.so``.
        verbose: say what is compiled, on stderr.
        with_cuda: give C++ sources CUDA's headers and link its runtime; None: if a source is CUDA.
        with_sycl: refused.
        is_python_module: False for sources that only register operators.
        is_standalone: refused: kernforge links no programs.
        keep_intermediates: accepted for compatibility with torch.

    Returns:
        The module; the path of the shared object if it is not a Python module.

    Raises:
        BuildError: a compiler failed; the message is its output.
        ToolchainError: a compiler or toolkit is missing.
        UsageError: the arguments are not valid.
    """
    if sources is None:
        from kernforge.extension.project import load_project  # noqa: PLC0415 - only who has one

        given = (extra_cflags, extra_cuda_cflags, extra_ldflags, extra_include_paths)
        if any(each is not None for each in (*given, build_directory, with_cuda)):
            raise UsageError(
                f"no sources are given, so {name} is a kernel project, whose flags are in its "
                "build.toml",
                hint="name the sources, or write the flags into build.toml",
            )
        return load_project(jit_session.PROCESS, Path(name), verbose=verbose)
    jit_request.refuse_sycl(extra_sycl_cflags, with_sycl)
    if is_standalone:
        raise UsageError("programs are not built here", hint="use torch's own loader")
    here = os.getcwd()  # noqa: PTH109 - a hot path
    listed = jit_request.paths(sources)
    wanted = Extension(
        name=os.fspath(name),
        sources=tuple(flags.absolute(source, here) for source in listed),
        cflags=flags.words(extra_cflags, "extra_cflags"),
        cuda_cflags=flags.words(extra_cuda_cflags, "extra_cuda_cflags"),
        ldflags=flags.words(extra_ldflags, "extra_ldflags"),
        includes=jit_request.paths(extra_include_paths),
        build_directory=os.fspath(build_directory or ""),
        with_cuda=with_cuda,
        is_python_module=is_python_module,
        here=here,
        environment=machine.toolchain_variables(jit_session.PROCESS.environment),
    )
    return load_request(jit_session.PROCESS, wanted, verbose=verbose)


def load_inline(  # noqa: PLR0917 - torch's signature
    name: str,
    cpp_sources: str | Sequence[str],
    cuda_sources: str | Sequence[str] | None = None,
    sycl_sources: str | Sequence[str] | None = None,
    functions: str | Sequence[str] | Mapping[str, str] | None = None,
    extra_cflags: Sequence[str] | None = None,
    extra_cuda_cflags: Sequence[str] | None = None,
    extra_sycl_cflags: Sequence[str] | None = None,
    extra_ldflags: Sequence[str] | None = None,
    extra_include_paths: Sequence[str] | None = None,
    build_directory: str | os.PathLike[str] | None = None,
    verbose: bool = False,  # noqa: FBT001, FBT002 - torch's signature
    with_cuda: bool | None = None,  # noqa: FBT001
    with_sycl: bool | None = None,  # noqa: FBT001
    is_python_module: bool = True,  # noqa: FBT001, FBT002
    with_pytorch_error_handling: bool = True,  # noqa: FBT001, FBT002
    keep_intermediates: bool = True,  # noqa: ARG001, FBT001, FBT002 - the store keeps or drops them
    use_pch: bool = False,  # noqa: ARG001, FBT001, FBT002 - headers are compiled ahead anyway
    no_implicit_headers: bool = False,  # noqa: FBT001, FBT002
    gil_not_used: bool = False,  # noqa: FBT001, FBT002
) -> Any:
    """Compile sources that are given as text; the arguments are those of torch's ``load_inline``.

    Torch's headers are put before the sources as torch does it, but not before CUDA that shows no
    use of torch nor before a binding on torch's stable ABI, which compile many times faster
    without.

    Arguments that ``load`` has too mean the same.

    Args:
        name: the module's name.
        cpp_sources: C++.
        cuda_sources: CUDA.
        sycl_sources: refused: kernforge compiles no SYCL.
        functions: names to bind with pybind11, or names and docstrings.
        with_pytorch_error_handling: call functions through torch's translation of errors.
        use_pch: accepted for compatibility with torch.
        no_implicit_headers: put no header before the sources.
        gil_not_used: say that the functions of ``functions`` may run without the GIL in a Python
            that is built so.

    Returns:
        The module; the path of the shared object if it is not a Python module.

    Raises:
        BuildError: a compiler failed; the message is its output.
        ToolchainError: a compiler or toolkit is missing.
        UsageError: the arguments are not valid.
    """
    jit_request.refuse_sycl(extra_sycl_cflags or sycl_sources, with_sycl)
    process = jit_session.PROCESS

    texts = inline.inline(
        cpp_sources,
        cuda_sources or (),
        functions,
        error_handling=with_pytorch_error_handling,
        implicit_headers=not no_implicit_headers,
        gil_not_used=gil_not_used,
    )
    wanted = Extension(
        name=name,
        sources=tuple(f"/{path}" for path in inline.UNITS if path in texts),
        texts=tuple(texts.items()),
        cflags=flags.words(extra_cflags, "extra_cflags"),
        cuda_cflags=flags.words(extra_cuda_cflags, "extra_cuda_cflags"),
        ldflags=flags.words(extra_ldflags, "extra_ldflags"),
        includes=jit_request.paths(extra_include_paths),
        build_directory=os.fspath(build_directory or ""),
        with_cuda=with_cuda,
        is_python_module=is_python_module,
        here=os.getcwd(),  # noqa: PTH109 - a hot path
        environment=machine.toolchain_variables(process.environment),
    )
    return load_request(process, wanted, verbose=verbose)


def load_request(session: JitSession, request: Extension, *, verbose: bool = False) -> Any:
    """Compile and load an extension, unless this process has it and its files are unchanged.

    Returns:
        The module; the path of the shared object if it is not a Python module.
    """
    cached = session.cache.get(request)
    if not _is_current(cached):
        with session.lock_for("module", request.name):
            cached = session.cache.get(request)
            if not _is_current(cached):
                console = Console(quiet=not verbose, failures=False)
                cached = _load_anew(session, request, console)
                session.cache[request] = cached
    loaded = cached.loaded
    loading.show_operators(loaded)
    return loaded.module if request.is_python_module else str(loaded.path)


def _is_current(cached: CachedModule | None) -> TypeGuard[CachedModule]:
    """Whether the files of a module are unchanged since its load."""
    return (
        cached is not None
        and cached.tree.unchanged()
        and (not cached.copy or os.path.exists(cached.copy))  # noqa: PTH110 - a hot path
    )


def _load_anew(session: JitSession, request: Extension, console: Console) -> CachedModule:
    installed = machine.installed_directories(session.environment)
    tree = Tree(dict(request.texts), request.here, installed)
    extension = read_extension(request, tree)
    check_module(extension, tree.restore)
    key = content_key(extension)
    loaded = session.modules.get(key)
    if loaded is None or not results.read_history(loaded.path.parent).is_valid_here:
        loaded = session.modules[key] = _build(session, extension, key, tree, console)
    # A compiler may have opened headers that no include line names.
    for header in results.read_history(loaded.path.parent).headers:
        tree.watch(header)
    return CachedModule(tree=tree, loaded=loaded, copy=_copy_module(request, loaded.path))


def _build(
    session: JitSession, extension: Extension, key: str, tree: Tree, console: Console
) -> LoadedModule:
    if extension.debugs:
        extension = replace(extension, source_root=_keep_sources(session, extension))
    toolchain = session.toolchain(extension, console)
    with session.namespaces_of(extension, key) as namespaces:
        (path,), _ = make.compile_extensions(
            [extension],
            toolchain,
            console,
            environment=session.environment,
            restore=tree.restore,
            namespaces=namespaces,
            device=session.device,
        )
        return loading.load_built(session, extension, path, namespaces, tree.restore)


def _keep_sources(session: JitSession, extension: Extension) -> str:
    """Directory from which the paths of sources start; texts are written for debuggers to read."""
    if not extension.texts:
        return "/"
    texts = dict(extension.texts)
    top = session.environment.home / "jit" / "sources" / digest.key("sources", texts=texts)[:32]
    for path, text in texts.items():
        if not (top / path).is_file():
            files.write_atomic(top / path, text, durable=False)
    return str(top)


def _copy_module(request: Extension, path: Path) -> str:
    """Copy a module into the caller's build directory, if any; returns the copy's path."""
    if not request.build_directory:
        return ""
    target = Path(request.here, request.build_directory, path.name)
    files.copy_atomic(path, target)
    return str(target)
