# SPDX-License-Identifier: Apache-2.0
"""Classes of a setup.py, with names and arguments of ``torch.utils.cpp_extension`` (2.13)."""

from __future__ import annotations

import copy
import functools
import os
import sys
import sysconfig
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal, TypeAlias

import setuptools
from setuptools import errors
from setuptools.command.build_ext import build_ext

from kernforge.builder.workspace import this_cpu
from kernforge.errors import KernforgeError
from kernforge.extension.plan import NVCC_FLAGS, Extension
from kernforge.extension.request import SUFFIXES
from kernforge.setuptools import build, target
from kernforge.setuptools.stub import build_console
from kernforge.system import files
from kernforge.system.environment import Environment

COMMON_NVCC_FLAGS = list(NVCC_FLAGS)
"""Flags of every CUDA source, as torch's; a setup.py may change the list."""
Kind: TypeAlias = Literal["cuda", "cpp", "plain"]
_COMPILERS = ("cxx", "nvcc", "nvcc_dlink")


def _directory(kind: Literal["torch", "cuda"]) -> Path:
    """Directory of torch or of the CUDA toolkit, by the current environment variables.

    A setup.py may set ``TORCH_CUDA_ARCH_LIST`` or ``MAX_JOBS`` between two calls.
    """
    environment = Environment.read()
    if stub := environment.kernforge_stub:
        provided = stub if kind == "torch" else environment.cuda_home
        if provided:
            return Path(provided)
    wanted = target.find_target(environment)
    return build.toolchain_directory(kind, wanted, environment, build_console(environment))


class TorchExtension(setuptools.Extension):
    """An extension that is compiled against torch."""

    kind: Kind = "cpp"


def CppExtension(name: str, sources: Sequence[str], *args: Any, **kwargs: Any) -> TorchExtension:  # noqa: N802 - torch's name
    """An extension in C++; the arguments are those of ``setuptools.Extension``.

    Args:
        name: of the module, with its packages, as ``"my_package.my_ops"``.
        sources: paths of C++ sources.
        args: as for ``setuptools.Extension``.
        kwargs: likewise; ``extra_compile_args`` may also be a dictionary with ``cxx`` and ``nvcc``.
    """
    return _extension("cpp", name, sources, args, kwargs)


def CUDAExtension(name: str, sources: Sequence[str], *args: Any, **kwargs: Any) -> TorchExtension:  # noqa: N802 - torch's name
    """An extension in C++ and CUDA; the arguments are those of ``setuptools.Extension``.

    Args:
        name: of the module, with its packages, as ``"my_package.my_ops"``.
        sources: paths of C++ and CUDA sources.
        args: as for ``setuptools.Extension``.
        kwargs: likewise; ``extra_compile_args`` may also be a dictionary with ``cxx``, ``nvcc`` and
            ``nvcc_dlink``; ``dlink`` and ``dlink_libraries`` link device code.
    """
    libraries = list(kwargs.pop("dlink_libraries", ()))
    if kwargs.pop("dlink", False) or libraries:
        flags = kwargs.get("extra_compile_args") or {}
        compilers = dict(flags) if isinstance(flags, dict) else {"cxx": flags, "nvcc": flags}
        words = [*compilers.get("nvcc_dlink", ()), "-dlink"]
        words += [f"-L{path}" for path in kwargs.get("library_dirs") or ()]
        words += [f"-l{library}" for library in libraries]
        kwargs["extra_compile_args"] = {**compilers, "nvcc_dlink": words}
    return _extension("cuda", name, sources, args, kwargs)


def _extension(
    kind: Kind, name: str, sources: Sequence[str], args: Sequence[Any], kwargs: dict[str, Any]
) -> TorchExtension:
    kwargs["language"] = "c++"
    extension = TorchExtension(name, list(map(os.fspath, sources)), *args, **kwargs)
    extension.kind = kind
    return extension


class BuildExtension(build_ext):
    """Command ``build_ext``: compiles all extensions of a setup.py in parallel, within memory.

    ``use_ninja`` is accepted and has no meaning. With ``no_python_abi_suffix`` the shared object is
    ``name.so``.
    """

    @classmethod
    def with_options(cls, **options: Any) -> type[BuildExtension]:
        """A subclass whose constructor has these options."""
        made = functools.partialmethod(cls.__init__, **options)
        return type("BuildExtensionWithOptions", (cls,), {"__init__": made})

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.no_python_abi_suffix: bool = kwargs.get("no_python_abi_suffix", False)
        self.use_ninja: bool = kwargs.get("use_ninja", True)
        self._built: dict[str, Path] = {}

    def build_extensions(self) -> None:
        """Compile all extensions, then copy each to its place."""
        self.check_extensions_list(self.extensions)
        requests = [
            extension_request(each, Path(self.get_ext_filename(name)).name, Path.cwd())
            for each in map(self._with_options, self.extensions)
            if _is_compiled_here(each) and (name := self.get_ext_fullname(each.name))
        ]
        self._check_directories()
        environment = Environment.read()
        try:
            self._built = build.build_extensions(requests, environment, build_console(environment))
        except KernforgeError as error:
            # setuptools ends with its message and without a traceback.
            raise errors.CompileError(str(error)) from error
        super().build_extensions()

    def _check_directories(self) -> None:
        """Refuse an editable install without the directory that a module is copied to.

        setuptools says so, but only when everything is compiled.
        """
        for extension in self.extensions if self.inplace else ():
            package = self.get_ext_fullname(extension.name).rpartition(".")[0]
            directory = self.get_finalized_command("build_py").get_package_dir(package)
            if directory and not Path(directory).is_dir():
                raise errors.CompileError(
                    f"{extension.name} is installed into {directory}, which is not there: make it, "
                    "with an __init__.py, or name the extension after a package that is there"
                )

    def _with_options(self, extension: setuptools.Extension) -> setuptools.Extension:
        """An extension with the command's options, which follow its own.

        They are those of the command line, of ``[build_ext]`` and of ``setup(include_dirs=...)``.
        """
        options = {
            "include_dirs": self.include_dirs,
            "define_macros": [
                (n, v) if "=" not in n else n.split("=", 1) for n, v in self.define or ()
            ],
            "undef_macros": self.undef,
            "libraries": self.libraries,
            "library_dirs": self.library_dirs,
            "runtime_library_dirs": self.rpath,
            "extra_objects": self.link_objects,
        }
        # setuptools adds this Python's own directories.
        own = [sysconfig.get_path("include"), sysconfig.get_path("platinclude")]
        own += [str(Path(sys.exec_prefix, "include")), sysconfig.get_config_var("LIBDIR")]
        made = copy.copy(extension)
        for name, values in options.items():
            added = [value for value in values or () if value not in own]
            setattr(made, name, [*(getattr(extension, name) or ()), *added])
        return made

    def build_extension(self, ext: setuptools.Extension) -> None:
        """Copy a compiled extension; setuptools builds those in other languages."""
        built = self._built.get(ext.name)
        if built is None:
            super().build_extension(ext)
            return
        path = Path(self.get_ext_fullpath(ext.name))
        files.make_dir(path.parent)
        files.copy_atomic(built, path)

    def get_ext_filename(self, fullname: str) -> str:
        """File name of an extension for the Python that it is built for."""
        name: str = super().get_ext_filename(fullname)
        own = sysconfig.get_config_var("EXT_SUFFIX")
        python = Environment.read().kernforge_python
        if python and own and name.endswith(own):
            digits = target.parse_python(python).replace(".", "")
            name = f"{name.removesuffix(own)}.cpython-{digits}-{this_cpu()}-linux-gnu.so"
        if self.no_python_abi_suffix:
            parts = name.split(".")
            name = ".".join((*parts[:-2], parts[-1])) if len(parts) > 2 else name  # noqa: PLR2004
        return name


def extension_request(extension: setuptools.Extension, file: str, here: Path) -> Extension:
    """The compile request of an extension."""
    flags: Any = extension.extra_compile_args or []
    compilers = flags if isinstance(flags, dict) else {"cxx": flags, "nvcc": flags}
    cxx, nvcc, dlink = (compilers.get(name) for name in _COMPILERS)
    macros = [f"-D{n}" if v is None else f"-D{n}={v}" for n, v in extension.define_macros or ()]
    macros += [f"-U{name}" for name in extension.undef_macros or ()]
    kind: Kind = extension.kind if isinstance(extension, TorchExtension) else "plain"
    return Extension(
        name=extension.name,
        sources=_strings(extension.sources),
        nvcc_defaults=tuple(COMMON_NVCC_FLAGS),
        cflags=(*macros, *_strings(cxx)),
        cuda_cflags=(*macros, *_strings(nvcc)),
        ldflags=(
            *_strings(extension.extra_objects),
            *(f"-L{path}" for path in _strings(extension.library_dirs)),
            *_strings(extension.extra_link_args),
            *(f"-l{name}" for name in _strings(extension.libraries)),
            *(f"-Wl,-rpath,{path}" for path in _strings(extension.runtime_library_dirs)),
        ),
        dlink=None if dlink is None else _strings(dlink),
        includes=_strings(extension.include_dirs),
        with_torch=kind != "plain",
        with_cuda=True if kind == "cuda" else None,
        limited_api=bool(extension.py_limited_api),
        file=file,
        here=str(here.absolute()),
    )


def include_paths(device_type: str | bool = "cpu", *, cuda: bool = False) -> list[str]:  # noqa: FBT001 - torch's
    """Directories of torch's headers, and of CUDA's.

    Args:
        device_type: ``"cpu"`` or ``"cuda"``.
        cuda: whether to name CUDA's; torch before 2.6 had this argument alone, as the first.
    """
    torch = _directory("torch") / "include"
    paths = [str(torch), str(torch / "torch/csrc/api/include")]
    if cuda or device_type is True or device_type == "cuda":
        paths.append(str(_directory("cuda") / "include"))
    return paths


def library_paths(device_type: str | bool = "cpu", *, cuda: bool = False) -> list[str]:  # noqa: FBT001 - torch's
    """Directories of CUDA's libraries; torch's own are not linked.

    Args:
        device_type: ``"cpu"`` or ``"cuda"``.
        cuda: whether to name them; torch before 2.6 had this argument alone, as the first.
    """
    if not cuda and device_type is not True and device_type != "cuda":
        return []
    return [str(_directory("cuda") / "lib64")]


def arch_flags() -> list[str]:
    """``-gencode`` flags of the target architectures; none for a CPU build of torch."""
    environment = Environment.read()
    if (cuda := target.find_target(environment).cuda) is None:
        return []
    archs = build.find_archs(cuda, environment, build_console(environment))
    return [word for arch in archs for word in arch.gencode()]


def __getattr__(name: str) -> object:
    """``CUDA_HOME``, found or fetched at its first use."""
    if name != "CUDA_HOME":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    wanted = target.find_target(Environment.read())
    return None if wanted.cuda is None and wanted.installed is None else str(_directory("cuda"))


def _is_compiled_here(extension: setuptools.Extension) -> bool:
    if isinstance(extension, TorchExtension):
        return True
    return bool(extension.sources) and all(s.endswith(SUFFIXES) for s in extension.sources)


def _strings(values: Iterable[Any] | None) -> tuple[str, ...]:
    return tuple(
        os.fspath(each) if isinstance(each, os.PathLike) else str(each) for each in values or ()
    )
