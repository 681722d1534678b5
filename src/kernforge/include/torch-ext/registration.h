// SPDX-License-Identifier: Apache-2.0
//
// What a kernel's torch binding needs to become an importable Python module with registered ops.
//
// TORCH_EXTENSION_NAME is itself a macro, given by the build, and torch's registration macros paste
// their first argument without expanding it. The *_EXPAND macros here expand it first:
//
//   STABLE_TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, ops) { ops.def("..."); }
//   STABLE_TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, CPU, ops) { ops.impl("...", ...); }
//   REGISTER_EXTENSION(TORCH_EXTENSION_NAME)
//
// Another source of the same kernel adds operators with STABLE_TORCH_LIBRARY_FRAGMENT_EXPAND.
//
// This header includes nothing of torch: include <torch/library.h> or
// <torch/csrc/stable/library.h> before the first use, whichever the binding speaks.
//
// The macro names and what they do are the ones that kernel sources for PyTorch already use.

#pragma once

// The module that REGISTER_EXTENSION makes needs two names of CPython's limited API and one
// structure, all unchanged since 3.2 and frozen by PEP 384. Python's headers are used where they
// are; where they are not, the declarations below give the same bytes in the object file.
#if defined(__has_include)
#if __has_include(<Python.h>)
#define KERNFORGE_HAS_PYTHON_H 1
#endif
#endif

#if defined(Py_PYTHON_H) || defined(KERNFORGE_HAS_PYTHON_H)

#if !defined(Py_PYTHON_H) && !defined(Py_LIMITED_API)
#define Py_LIMITED_API 0x03090000  // one binary for CPython 3.9 and all later ones
#endif
#include <Python.h>

#else

#include <cstddef>

extern "C" {

using Py_ssize_t = std::ptrdiff_t;  // Py_ssize_t is ssize_t, which has the size of ptrdiff_t

// Builds with a GIL only: a free-threaded CPython has another object header, and no limited API
// before 3.15.
struct _object {
  Py_ssize_t ob_refcnt;
  struct _typeobject* ob_type;
};
using PyObject = struct _object;

struct PyModuleDef_Base {
  PyObject ob_base;
  PyObject* (*m_init)();
  Py_ssize_t m_index;
  PyObject* m_copy;
};

struct PyModuleDef {
  PyModuleDef_Base m_base;
  const char* m_name;
  const char* m_doc;
  Py_ssize_t m_size;
  struct PyMethodDef* m_methods;
  struct PyModuleDef_Slot* m_slots;
  int (*m_traverse)(PyObject*, int (*)(PyObject*, void*), void*);
  int (*m_clear)(PyObject*);
  void (*m_free)(void*);
};

PyObject* PyModule_Create2(PyModuleDef* definition, int abi_version);

}  // extern "C"

#define PyModuleDef_HEAD_INIT {{1, nullptr}, nullptr, 0, nullptr}
#define PyMODINIT_FUNC extern "C" __attribute__((visibility("default"))) PyObject*
// 3 is PYTHON_ABI_VERSION, what every user of the limited API passes.
#define PyModule_Create(definition) PyModule_Create2(definition, 3)

#endif

#define KERNFORGE_CONCAT_TOKENS(A, B) A##B
#define KERNFORGE_STRINGIFY_TOKENS(A) #A

// Paste and quote after expanding the arguments.
#ifndef CONCAT
#define CONCAT(A, B) KERNFORGE_CONCAT_TOKENS(A, B)
#endif
#ifndef STRINGIFY
#define STRINGIFY(A) KERNFORGE_STRINGIFY_TOKENS(A)
#endif

#if defined(KERNFORGE_NAMESPACE_AT_LINK)

// The build defines this where NAME is TORCH_EXTENSION_NAME throughout. The namespace then comes
// from an object of its own at link time, so that this one serves every build: the name changes
// with each edit of any source. What is left of torch's macros is what they are for every torch
// from 2.8 on (the stable ones: 2.10): an object of the same class with the same arguments.
extern "C" __attribute__((visibility("hidden"))) const char kernforge_namespace[];

#define TORCH_LIBRARY_EXPAND(NAME, MODULE)                                                 \
  static void kernforge_define(torch::Library&);                                           \
  static const torch::detail::TorchLibraryInit kernforge_defined(                          \
      torch::Library::DEF, &kernforge_define, kernforge_namespace, std::nullopt, __FILE__, \
      __LINE__);                                                                           \
  void kernforge_define(torch::Library& MODULE)
#define TORCH_LIBRARY_FRAGMENT_EXPAND(NAME, MODULE) \
  KERNFORGE_FRAGMENT(MODULE, CONCAT(kernforge_extend_, __COUNTER__))
#define KERNFORGE_FRAGMENT(MODULE, FUNCTION)                                                       \
  static void FUNCTION(torch::Library&);                                                           \
  static const torch::detail::TorchLibraryInit CONCAT(FUNCTION, _done)(                            \
      torch::Library::FRAGMENT, &FUNCTION, kernforge_namespace, std::nullopt, __FILE__, __LINE__); \
  void FUNCTION(torch::Library& MODULE)
#define TORCH_LIBRARY_IMPL_EXPAND(NAME, DEVICE, MODULE) \
  KERNFORGE_IMPL(DEVICE, MODULE, CONCAT(kernforge_implement_, __COUNTER__))
#define KERNFORGE_IMPL(DEVICE, MODULE, FUNCTION)                         \
  static void FUNCTION(torch::Library&);                                 \
  static const torch::detail::TorchLibraryInit CONCAT(FUNCTION, _done)(  \
      torch::Library::IMPL, &FUNCTION, kernforge_namespace,              \
      std::make_optional(c10::DispatchKey::DEVICE), __FILE__, __LINE__); \
  void FUNCTION(torch::Library& MODULE)

#define STABLE_TORCH_LIBRARY_EXPAND(NAME, MODULE)                                              \
  static void kernforge_define(torch::stable::detail::StableLibrary&);                         \
  static const torch::stable::detail::StableTorchLibraryInit kernforge_defined(                \
      torch::stable::detail::StableLibrary::Kind::DEF, &kernforge_define, kernforge_namespace, \
      nullptr, __FILE__, __LINE__);                                                            \
  void kernforge_define(torch::stable::detail::StableLibrary& MODULE)
#define STABLE_TORCH_LIBRARY_FRAGMENT_EXPAND(NAME, MODULE) \
  KERNFORGE_STABLE_FRAGMENT(MODULE, CONCAT(kernforge_extend_, __COUNTER__))
#define KERNFORGE_STABLE_FRAGMENT(MODULE, FUNCTION)                                         \
  static void FUNCTION(torch::stable::detail::StableLibrary&);                              \
  static const torch::stable::detail::StableTorchLibraryInit CONCAT(FUNCTION, _done)(       \
      torch::stable::detail::StableLibrary::Kind::FRAGMENT, &FUNCTION, kernforge_namespace, \
      nullptr, __FILE__, __LINE__);                                                         \
  void FUNCTION(torch::stable::detail::StableLibrary& MODULE)
#define STABLE_TORCH_LIBRARY_IMPL_EXPAND(NAME, DEVICE, MODULE) \
  KERNFORGE_STABLE_IMPL(DEVICE, MODULE, CONCAT(kernforge_implement_, __COUNTER__))
#define KERNFORGE_STABLE_IMPL(DEVICE, MODULE, FUNCTION)                                 \
  static void FUNCTION(torch::stable::detail::StableLibrary&);                          \
  static const torch::stable::detail::StableTorchLibraryInit CONCAT(FUNCTION, _done)(   \
      torch::stable::detail::StableLibrary::Kind::IMPL, &FUNCTION, kernforge_namespace, \
      STRINGIFY(DEVICE), __FILE__, __LINE__);                                           \
  void FUNCTION(torch::stable::detail::StableLibrary& MODULE)

// PyInit_<NAME> stands beside the name and calls this.
#define REGISTER_EXTENSION(NAME)                                                \
  extern "C" __attribute__((visibility("hidden"))) PyObject* kernforge_module() \
      KERNFORGE_MODULE(kernforge_namespace)

#else

// torch's macros of the same names without _EXPAND, with NAME expanded first.
#define TORCH_LIBRARY_EXPAND(NAME, MODULE) TORCH_LIBRARY(NAME, MODULE)
#define TORCH_LIBRARY_FRAGMENT_EXPAND(NAME, MODULE) TORCH_LIBRARY_FRAGMENT(NAME, MODULE)
#define TORCH_LIBRARY_IMPL_EXPAND(NAME, DEVICE, MODULE) TORCH_LIBRARY_IMPL(NAME, DEVICE, MODULE)
#define STABLE_TORCH_LIBRARY_EXPAND(NAME, MODULE) STABLE_TORCH_LIBRARY(NAME, MODULE)
#define STABLE_TORCH_LIBRARY_FRAGMENT_EXPAND(NAME, MODULE) \
  STABLE_TORCH_LIBRARY_FRAGMENT(NAME, MODULE)
#define STABLE_TORCH_LIBRARY_IMPL_EXPAND(NAME, DEVICE, MODULE) \
  STABLE_TORCH_LIBRARY_IMPL(NAME, DEVICE, MODULE)

// Defines PyInit_<NAME>: importing the shared object as NAME gives an empty module, and loading it
// has run the registrations above.
#define REGISTER_EXTENSION(NAME) \
  PyMODINIT_FUNC CONCAT(PyInit_, NAME)() KERNFORGE_MODULE(STRINGIFY(NAME))

#endif

#define KERNFORGE_MODULE(NAME)                                                                 \
  {                                                                                            \
    static PyModuleDef definition = {                                                          \
        PyModuleDef_HEAD_INIT, NAME, nullptr, 0, nullptr, nullptr, nullptr, nullptr, nullptr}; \
    return PyModule_Create(&definition);                                                       \
  }
