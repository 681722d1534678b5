// SPDX-License-Identifier: Apache-2.0
#include <cstdlib>
#include <new>
extern "C" {
int torch_like_function(int);
__attribute__((weak)) int may_be_missing();
int offered = 3;
int entry(int x) {
  void* p = std::malloc(x);
  delete static_cast<int*>(p);
  return torch_like_function(x) + (may_be_missing ? may_be_missing() : 0);
}
}
inline int& merged() {
  static int value = 1;
  return value;
}
int* merge() { return &merged(); }
