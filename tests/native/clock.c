/* SPDX-License-Identifier: Apache-2.0 */
/* Preloaded, it moves the wall clock of a program by CLOCK_SHIFT_S seconds: what it asks for the
 * time, and the times of all files but those that were set to a fixed day long ago. With CLOCK_TELL
 * a program that starts with it says which second it sees, in one line on its standard error. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/timeb.h>
#include <time.h>

#define FIXED 1000000000 /* of 2001; files of a build are dated 1980 */
#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

static long shift(void) {
  static long seconds = -1;
  if (seconds < 0) {
    const char* text = getenv("CLOCK_SHIFT_S");
    seconds = text ? atol(text) : 0;
  }
  return seconds;
}

static int shifted_clock(clockid_t id) {
  return id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE || id == CLOCK_TAI;
}

int clock_gettime(clockid_t id, struct timespec* to) {
  int status = NEXT(clock_gettime)(id, to);
  if (status == 0 && shifted_clock(id)) to->tv_sec += shift();
  return status;
}

time_t time(time_t* to) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  if (to) *to = now.tv_sec;
  return now.tv_sec;
}

int gettimeofday(struct timeval* restrict to, void* restrict zone) {
  int status = NEXT(gettimeofday)(to, zone);
  if (status == 0) to->tv_sec += shift();
  return status;
}

int timespec_get(struct timespec* to, int base) {
  int status = NEXT(timespec_get)(to, base);
  if (status == base) to->tv_sec += shift();
  return status;
}

#define MOVE(seconds) \
  if ((seconds) > FIXED) (seconds) += shift()

#define MOVED(status, to)         \
  do {                            \
    if ((status) == 0) {          \
      MOVE((to)->st_atim.tv_sec); \
      MOVE((to)->st_mtim.tv_sec); \
      MOVE((to)->st_ctim.tv_sec); \
    }                             \
    return status;                \
  } while (0)

#define BY_PATH(name, type)              \
  int name(const char* path, type* to) { \
    int status = NEXT(name)(path, to);   \
    MOVED(status, to);                   \
  }
#define BY_NUMBER(name, type)          \
  int name(int file, type* to) {       \
    int status = NEXT(name)(file, to); \
    MOVED(status, to);                 \
  }
#define BY_PLACE(name, type)                                       \
  int name(int directory, const char* path, type* to, int flags) { \
    int status = NEXT(name)(directory, path, to, flags);           \
    MOVED(status, to);                                             \
  }
BY_PATH(stat, struct stat)
BY_PATH(lstat, struct stat)
BY_NUMBER(fstat, struct stat)
BY_PLACE(fstatat, struct stat)
BY_PATH(stat64, struct stat64)
BY_PATH(lstat64, struct stat64)
BY_NUMBER(fstat64, struct stat64)
BY_PLACE(fstatat64, struct stat64)

/* The names that programs made for an older C library ask for, as nvcc's are. */
#define OLD_BY_PATH(name, type)                       \
  int name(int version, const char* path, type* to);  \
  int name(int version, const char* path, type* to) { \
    int status = NEXT(name)(version, path, to);       \
    MOVED(status, to);                                \
  }
#define OLD_BY_NUMBER(name, type)               \
  int name(int version, int file, type* to);    \
  int name(int version, int file, type* to) {   \
    int status = NEXT(name)(version, file, to); \
    MOVED(status, to);                          \
  }
OLD_BY_PATH(__xstat, struct stat)
OLD_BY_PATH(__lxstat, struct stat)
OLD_BY_NUMBER(__fxstat, struct stat)
OLD_BY_PATH(__xstat64, struct stat64)
OLD_BY_PATH(__lxstat64, struct stat64)
OLD_BY_NUMBER(__fxstat64, struct stat64)

int statx(int directory, const char* restrict path, int flags, unsigned mask,
          struct statx* restrict to) {
  int status = NEXT(statx)(directory, path, flags, mask, to);
  if (status == 0) {
    MOVE(to->stx_atime.tv_sec);
    MOVE(to->stx_btime.tv_sec);
    MOVE(to->stx_ctime.tv_sec);
    MOVE(to->stx_mtime.tv_sec);
  }
  return status;
}

__attribute__((constructor)) static void say(void) {
  if (getenv("CLOCK_TELL"))
    fprintf(stderr, "clock of %s: %ld\n", program_invocation_short_name, (long)time(0));
}
