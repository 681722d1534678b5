// SPDX-License-Identifier: Apache-2.0
// Torch's macros that register operators, but for the name, which comes at link time: an object of
// the same class with the same arguments.
#define KERNFORGE_PASTE_(A, B) A##B
#define KERNFORGE_PASTE(A, B) KERNFORGE_PASTE_(A, B)
#define KERNFORGE_OBJECT(KIND, NAME, KEY, MODULE, FUNCTION)                      \
  static void FUNCTION(torch::Library&);                                         \
  static const torch::detail::TorchLibraryInit KERNFORGE_PASTE(FUNCTION, _done)( \
      torch::Library::KIND, &FUNCTION, NAME, KEY, __FILE__, __LINE__);           \
  void FUNCTION(torch::Library& MODULE)
#define KERNFORGE_LIBRARY(NAME, MODULE)             \
  KERNFORGE_OBJECT(DEF, NAME, std::nullopt, MODULE, \
                   KERNFORGE_PASTE(kernforge_library_, __COUNTER__))
#define KERNFORGE_LIBRARY_FRAGMENT(NAME, MODULE)         \
  KERNFORGE_OBJECT(FRAGMENT, NAME, std::nullopt, MODULE, \
                   KERNFORGE_PASTE(kernforge_library_, __COUNTER__))
#define KERNFORGE_LIBRARY_IMPL(NAME, KEY, MODULE)                                 \
  KERNFORGE_OBJECT(IMPL, NAME, std::make_optional(c10::DispatchKey::KEY), MODULE, \
                   KERNFORGE_PASTE(kernforge_library_, __COUNTER__))
#define KERNFORGE_STABLE_OBJECT(KIND, NAME, KEY, MODULE, FUNCTION)                                 \
  static void FUNCTION(torch::stable::detail::StableLibrary&);                                     \
  static const torch::stable::detail::StableTorchLibraryInit KERNFORGE_PASTE(FUNCTION, _done)(     \
      torch::stable::detail::StableLibrary::Kind::KIND, &FUNCTION, NAME, KEY, __FILE__, __LINE__); \
  void FUNCTION(torch::stable::detail::StableLibrary& MODULE)
#define KERNFORGE_STABLE_LIBRARY(NAME, MODULE)        \
  KERNFORGE_STABLE_OBJECT(DEF, NAME, nullptr, MODULE, \
                          KERNFORGE_PASTE(kernforge_library_, __COUNTER__))
#define KERNFORGE_STABLE_LIBRARY_FRAGMENT(NAME, MODULE)    \
  KERNFORGE_STABLE_OBJECT(FRAGMENT, NAME, nullptr, MODULE, \
                          KERNFORGE_PASTE(kernforge_library_, __COUNTER__))
#define KERNFORGE_STABLE_LIBRARY_IMPL(NAME, KEY, MODULE) \
  KERNFORGE_STABLE_OBJECT(IMPL, NAME, #KEY, MODULE,      \
                          KERNFORGE_PASTE(kernforge_library_, __COUNTER__))
