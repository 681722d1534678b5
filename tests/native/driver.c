/* SPDX-License-Identifier: Apache-2.0
 * A driver for one test: each function fails unless its arguments are those that the test hands in. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <string.h>

#define AT ((uint64_t)0x7f0000001000)
enum { OK = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, INVALID_PTX = 218, NOT_SUPPORTED = 801 };
#define ONLY(condition) return (condition) ? OK : INVALID_VALUE

typedef struct {
  char bytes[64];
} Handle;

static int is_handle(const char *bytes) {
  for (int i = 0; i < 64; i++)
    if (bytes[i] != (char)(200 + i)) return 0;
  return 1;
}

int cuInit(unsigned flags) { ONLY(flags == 0); }
int cuDriverGetVersion(int *version) { return *version = 13000, OK; }
int cuDevicePrimaryCtxRetain(void **context, int device) {
  *context = (void *)77;
  ONLY(device == 0);
}
int cuCtxSetCurrent(void *context) { ONLY(context == (void *)77); }
int cuCtxSynchronize(void) { return OK; }
int cuCtxResetPersistingL2Cache(void) { return NOT_SUPPORTED; }

int cuEventCreate(void **event, unsigned flags) {
  static long next = 100;
  *event = (void *)next++;
  ONLY(flags == 0);
}
int cuEventRecord(void *event, void *stream) {
  ONLY((event == (void *)100 || event == (void *)101) && stream == (void *)9);
}
int cuEventSynchronize(void *event) { ONLY(event == (void *)101); }
int cuEventElapsedTime(float *ms, void *start, void *end) {
  *ms = 1.5f;
  ONLY(start == (void *)100 && end == (void *)101);
}

int cuMemAlloc(uint64_t *at, size_t size) { return *at = AT, size == 5 ? OK : OUT_OF_MEMORY; }
int cuMemFree(uint64_t at) { ONLY(at == AT); }
int cuIpcGetMemHandle(Handle *handle, uint64_t at) {
  for (int i = 0; i < 64; i++) handle->bytes[i] = (char)(200 + i);
  ONLY(at == AT);
}
int cuIpcOpenMemHandle(uint64_t *at, Handle handle, unsigned flags) {
  *at = AT + 1;
  ONLY(is_handle(handle.bytes) && flags == 1);
}

int cuModuleLoadData(void **module, const char *text) {
  *module = (void *)5;
  return strcmp(text, ".version 6.0\n") ? INVALID_PTX : OK;
}
int cuModuleGetFunction(void **function, void *module, const char *name) {
  *function = (void *)6;
  ONLY(module == (void *)5 && !strcmp(name, "gate"));
}
int cuLaunchKernel(void *function, unsigned x, unsigned y, unsigned z, unsigned threads,
                   unsigned threads_y, unsigned threads_z, unsigned shared, void *stream,
                   void **values, void **extra) {
  ONLY(function == (void *)6 && x == 264 && y * z == 1 && threads == 1024 &&
       threads_y * threads_z == 1 && shared == 0 && stream == (void *)9 && !extra &&
       *(uint64_t *)values[0] == 0x123456789abc && *(uint32_t *)values[1] == 7);
}

int cuGetErrorString(int code, const char **text) {
  return *text = code == OUT_OF_MEMORY ? "out of memory" : "another reason", OK;
}
static int unknown(void) { return INVALID_VALUE; }
int cuGetProcAddress_v2(const char *name, void **function, int version, uint64_t flags,
                        int *status) {
  (void)version, (void)flags;
  static void *self;
  Dl_info info;
  if (!self && dladdr((void *)cuInit, &info)) self = dlopen(info.dli_fname, RTLD_NOW);
  *function = self ? dlsym(self, name) : 0;
  if (!*function) *function = (void *)unknown;
  if (status) *status = 0;
  return OK;
}
