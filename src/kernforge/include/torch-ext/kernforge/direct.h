// SPDX-License-Identifier: Apache-2.0
//
// From Python to an op without torch.ops, where every argument is a plain tensor.
//
// torch.ops reads each argument against a schema and boxes it, which takes a tenth of a small call
// on a GPU. A function made here does what torch's own Python functions do: it takes the tensors
// out of their Python objects, gives up the GIL, calls the dispatcher and wraps the result. What
// lies below (autograd, vmap, dispatch modes, fake tensors, the profiler) sees no difference.
// Subclasses, torch function modes and arguments that are no tensors are not for it: it answers
// NotImplemented, and its caller asks torch.ops.
//
//   PyMethodDef methods[] = {kernforge::direct::method<&op>("name"), {}};  // op() gives a handle
//
// and, before this or registration.h is included: #define EXTENSION_METHODS methods. A
// registration.h that does not know that name makes a module without the function.
//
// Of Python only the limited API is used. Of libtorch_python, which every `import torch` loads,
// four names are looked up when the first call is made: linked to it, a build would need more than
// those of other kernels do. Where a torch lacks one of them the answer is NotImplemented as well.

#pragma once

#include <ATen/PythonTorchFunctionTLS.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <dlfcn.h>

#include <array>
#include <exception>
#include <utility>

#include "../registration.h"

#if !defined(Py_PYTHON_H)

// What registration.h does not declare of the limited API, where Python's headers are not read.
extern "C" {

using PyCFunction = PyObject* (*)(PyObject*, PyObject*);
struct PyMethodDef {
  const char* ml_name;
  PyCFunction ml_meth;
  int ml_flags;
  const char* ml_doc;
};
struct _ts;

extern PyObject _Py_NotImplementedStruct;
void Py_IncRef(PyObject*);
void Py_DecRef(PyObject*);
PyObject* PyUnicode_InternFromString(const char*);
PyObject* PyObject_GetAttr(PyObject*, PyObject*);
void* PyLong_AsVoidPtr(PyObject*);
struct _ts* PyEval_SaveThread();
void PyEval_RestoreThread(struct _ts*);

}  // extern "C"

#endif

namespace kernforge::direct {

// METH_FASTCALL: (self, arguments, count). The bit and the signature are those of Python 3.7 and
// all later ones; headers hide the name below limited API 3.10, from which on it is promised.
constexpr int kFastCall = 0x80;

struct Torch {
  // The classes whose objects are plain tensors.
  PyObject** tensor = nullptr;
  PyObject** parameter = nullptr;
  // A tensor's object, made where there is none yet.
  PyObject* (*wrap)(const at::TensorBase&) = nullptr;
  // Sets Python's error for an exception of C++.
  void (*translate)(const std::exception_ptr&) = nullptr;
  // The attribute that is a tensor's address.
  PyObject* cdata = PyUnicode_InternFromString("_cdata");

  Torch() {
    void* library = dlopen("libtorch_python.so", RTLD_LAZY | RTLD_NOLOAD);
    if (library == nullptr) return;
    find(library, "THPVariableClass", tensor);
    find(library, "ParameterClass", parameter);
    find(library, "_Z16THPVariable_WrapRKN2at10TensorBaseE", wrap);
    find(library, "_ZN5torch29translate_exception_to_pythonERKNSt15__exception_ptr13exception_ptrE",
         translate);
  }

  template <class Pointer>
  static void find(void* library, const char* name, Pointer& found) {
    found = reinterpret_cast<Pointer>(dlsym(library, name));
  }

  bool whole() const { return tensor && parameter && wrap && translate && cdata; }

  bool plain(PyObject* object) const {
    const auto* type = reinterpret_cast<PyObject*>(object->ob_type);
    return type == *tensor || type == *parameter;
  }
};

// Made by the first call. It holds the GIL, and nothing in here gives it up: no other thread waits
// for this one while this one waits for the GIL.
inline const Torch& torch_python() {
  static const Torch found;
  return found;
}

// The tensor of a plain tensor's object, by an attribute: how the object looks inside differs
// between torch's releases.
inline at::Tensor tensor_of(PyObject* object) {
  PyObject* address = PyObject_GetAttr(object, torch_python().cdata);
  TORCH_CHECK(address != nullptr, "a tensor without _cdata");
  auto* tensor = static_cast<c10::TensorImpl*>(PyLong_AsVoidPtr(address));
  Py_DecRef(address);
  using Counted = c10::intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>;
  return at::Tensor(Counted::reclaim_copy(tensor));
}

// Other Python threads run while this lives.
class Unlocked {
 public:
  Unlocked() = default;
  Unlocked(const Unlocked&) = delete;
  Unlocked& operator=(const Unlocked&) = delete;
  ~Unlocked() { PyEval_RestoreThread(state_); }

 private:
  struct _ts* state_ = PyEval_SaveThread();
};

template <class... Inputs, size_t... i>
PyObject* call(const c10::TypedOperatorHandle<at::Tensor(Inputs...)>& op, PyObject* const* given,
               std::index_sequence<i...>) {
  const Torch& torch = torch_python();
  try {
    const std::array<at::Tensor, sizeof...(i)> inputs = {tensor_of(given[i])...};
    at::Tensor out;
    {
      const Unlocked here;
      out = op.call(inputs[i]...);
    }
    return torch.wrap(out);
  } catch (...) {
    torch.translate(std::current_exception());
    return nullptr;
  }
}

template <class... Inputs>
PyObject* answer(const c10::TypedOperatorHandle<at::Tensor(Inputs...)>& op, PyObject* const* given,
                 Py_ssize_t count) {
  const Torch& torch = torch_python();
  bool plain =
      count == sizeof...(Inputs) && torch.whole() && !at::impl::torch_function_mode_enabled();
  for (Py_ssize_t i = 0; plain && i < count; ++i) plain = torch.plain(given[i]);
  if (plain) return call(op, given, std::index_sequence_for<Inputs...>());
  Py_IncRef(&_Py_NotImplementedStruct);
  return &_Py_NotImplementedStruct;
}

template <auto op>
PyObject* function(PyObject*, PyObject* const* given, Py_ssize_t count) {
  return answer(op(), given, count);
}

// An entry of a module's methods. `op` is a function that gives a handle to an op of tensors.
template <auto op>
PyMethodDef method(const char* name) {
  const auto made = reinterpret_cast<void (*)()>(&function<op>);
  return {name, reinterpret_cast<PyCFunction>(made), kFastCall, nullptr};
}

}  // namespace kernforge::direct
