// SPDX-License-Identifier: Apache-2.0
// What headers newer than the ABI floor make an object ask for, answered with what the floor has.
//
// Everything here is hidden and in a section of its own, so the linker keeps only what is used.
// A function is defined under its C++ name and given the symbol with an asm label, because newer
// headers declare, redirect or inline the same names. glibc's are grouped by the release that
// brought them (its NEWS file), libstdc++'s by GCC's.

#include <sstream>

#define PROVIDES(symbol) __asm__(symbol) __attribute__((visibility("hidden")))
#define FLOOR(symbol) __asm__(symbol)

using Size = unsigned long;
struct Timespec {  // struct timespec of every 64-bit Linux
  long seconds, nanoseconds;
};

extern "C" {

// ---- What crtbeginS.o would bring: static destructors run when the library is closed.

__attribute__((visibility("hidden"))) void* __dso_handle = &__dso_handle;
void __cxa_finalize(void*);
int __cxa_atexit(void (*)(void*), void*, void*);
int __cxa_at_quick_exit(void (*)(void*), void*);
int __register_atfork(void (*)(), void (*)(), void (*)(), void*);

// 65534 puts it where crtbeginS.o stands: after destructors without a priority.
__attribute__((destructor(65534))) static void finalize() { __cxa_finalize(__dso_handle); }

// ---- libc_nonshared.a of every glibc.

int kf_atexit(void (*function)()) PROVIDES("atexit");
int kf_atexit(void (*function)()) {
  return __cxa_atexit(reinterpret_cast<void (*)(void*)>(function), nullptr, __dso_handle);
}

int kf_at_quick_exit(void (*function)()) PROVIDES("at_quick_exit");
int kf_at_quick_exit(void (*function)()) {
  return __cxa_at_quick_exit(reinterpret_cast<void (*)(void*)>(function), __dso_handle);
}

int kf_atfork(void (*prepare)(), void (*parent)(), void (*child)()) PROVIDES("pthread_atfork");
int kf_atfork(void (*prepare)(), void (*parent)(), void (*child)()) {
  return __register_atfork(prepare, parent, child, __dso_handle);
}

// ---- glibc 2.33 turned the stat family from inline wrappers into functions.

#if defined(__x86_64__)
enum { kStatVersion = 1, kMknodVersion = 0 };
#else
enum { kStatVersion = 0, kMknodVersion = 0 };
#endif
int __xstat(int, const char*, void*);
int __lxstat(int, const char*, void*);
int __fxstat(int, int, void*);
int __fxstatat(int, int, const char*, void*, int);
int __xmknod(int, const char*, unsigned, unsigned long*);
int __xmknodat(int, int, const char*, unsigned, unsigned long*);

#define STAT_FAMILY(suffix)                                                                       \
  int kf_stat##suffix(const char* path, void* out) PROVIDES("stat" #suffix);                      \
  int kf_stat##suffix(const char* path, void* out) { return __xstat(kStatVersion, path, out); }   \
  int kf_lstat##suffix(const char* path, void* out) PROVIDES("lstat" #suffix);                    \
  int kf_lstat##suffix(const char* path, void* out) { return __lxstat(kStatVersion, path, out); } \
  int kf_fstat##suffix(int file, void* out) PROVIDES("fstat" #suffix);                            \
  int kf_fstat##suffix(int file, void* out) { return __fxstat(kStatVersion, file, out); }         \
  int kf_fstatat##suffix(int dir, const char* path, void* out, int flags)                         \
      PROVIDES("fstatat" #suffix);                                                                \
  int kf_fstatat##suffix(int dir, const char* path, void* out, int flags) {                       \
    return __fxstatat(kStatVersion, dir, path, out, flags);                                       \
  }
STAT_FAMILY()
STAT_FAMILY(64)

int kf_mknod(const char* path, unsigned mode, unsigned long device) PROVIDES("mknod");
int kf_mknod(const char* path, unsigned mode, unsigned long device) {
  return __xmknod(kMknodVersion, path, mode, &device);
}

int kf_mknodat(int dir, const char* path, unsigned mode, unsigned long device) PROVIDES("mknodat");
int kf_mknodat(int dir, const char* path, unsigned mode, unsigned long device) {
  return __xmknodat(kMknodVersion, dir, path, mode, &device);
}

// ---- glibc 2.30: waits on a given clock. The floor waits on the real-time clock only; whoever
// calls these looks at its own clock again afterwards, as a wait may always end early.

int floor_clock_gettime(int clock, Timespec* now) FLOOR("clock_gettime");
int floor_cond_timedwait(void*, void*, const Timespec*) FLOOR("pthread_cond_timedwait");
int floor_mutex_timedlock(void*, const Timespec*) FLOOR("pthread_mutex_timedlock");
int floor_rwlock_timedrdlock(void*, const Timespec*) FLOOR("pthread_rwlock_timedrdlock");
int floor_rwlock_timedwrlock(void*, const Timespec*) FLOOR("pthread_rwlock_timedwrlock");
int floor_sem_timedwait(void*, const Timespec*) FLOOR("sem_timedwait");

static Timespec on_realtime_clock(int clock, const Timespec* until) {
  constexpr int kRealtime = 0;
  constexpr long kSecond = 1000000000;
  if (clock == kRealtime) return *until;
  Timespec now, real;
  floor_clock_gettime(clock, &now);
  floor_clock_gettime(kRealtime, &real);
  long seconds = real.seconds + (until->seconds - now.seconds);
  long nanoseconds = real.nanoseconds + (until->nanoseconds - now.nanoseconds);
  while (nanoseconds < 0) nanoseconds += kSecond, --seconds;
  while (nanoseconds >= kSecond) nanoseconds -= kSecond, ++seconds;
  return {seconds, nanoseconds};
}

int kf_cond_clockwait(void* condition, void* mutex, int clock, const Timespec* until)
    PROVIDES("pthread_cond_clockwait");
int kf_cond_clockwait(void* condition, void* mutex, int clock, const Timespec* until) {
  Timespec real = on_realtime_clock(clock, until);
  return floor_cond_timedwait(condition, mutex, &real);
}

#define ON_CLOCK(name, old)                                                    \
  int kf_##old(void* object, int clock, const Timespec* until) PROVIDES(name); \
  int kf_##old(void* object, int clock, const Timespec* until) {               \
    Timespec real = on_realtime_clock(clock, until);                           \
    return floor_##old(object, &real);                                         \
  }
ON_CLOCK("pthread_mutex_clocklock", mutex_timedlock)
ON_CLOCK("pthread_rwlock_clockrdlock", rwlock_timedrdlock)
ON_CLOCK("pthread_rwlock_clockwrlock", rwlock_timedwrlock)
ON_CLOCK("sem_clockwait", sem_timedwait)

// ---- glibc 2.32: whether the process has one thread. "No" is always right, only slower.

extern char kf_single_threaded PROVIDES("__libc_single_threaded");
char kf_single_threaded = 0;

// ---- glibc 2.36: arc4random, which newer libstdc++ archives use for std::random_device.

long floor_getrandom(void*, Size, unsigned) FLOOR("getrandom");
unsigned kf_arc4random() PROVIDES("arc4random");
unsigned kf_arc4random() {
  unsigned value = 0;
  while (floor_getrandom(&value, sizeof value, 0) != sizeof value) {
  }
  return value;
}

// ---- glibc 2.38: C23's readers of numbers. The older ones differ in one thing: "0b1" in base 0
// or 2 is read as 0.

#define NUMBER(Type, Char, name)                                                                   \
  Type floor_##name(const Char*, Char**, int) FLOOR(#name);                                        \
  Type kf_##name(const Char* text, Char** end, int base) PROVIDES("__isoc23_" #name);              \
  Type kf_##name(const Char* text, Char** end, int base) { return floor_##name(text, end, base); } \
  Type floor_##name##_l(const Char*, Char**, int, void*) FLOOR(#name "_l");                        \
  Type kf_##name##_l(const Char* text, Char** end, int base, void* locale)                         \
      PROVIDES("__isoc23_" #name "_l");                                                            \
  Type kf_##name##_l(const Char* text, Char** end, int base, void* locale) {                       \
    return floor_##name##_l(text, end, base, locale);                                              \
  }
NUMBER(long, char, strtol)
NUMBER(unsigned long, char, strtoul)
NUMBER(long long, char, strtoll)
NUMBER(unsigned long long, char, strtoull)
NUMBER(long, wchar_t, wcstol)
NUMBER(unsigned long, wchar_t, wcstoul)
NUMBER(long long, wchar_t, wcstoll)
NUMBER(unsigned long long, wchar_t, wcstoull)

#define WIDEST(Type, Char, name)                                                      \
  Type floor_##name(const Char*, Char**, int) FLOOR(#name);                           \
  Type kf_##name(const Char* text, Char** end, int base) PROVIDES("__isoc23_" #name); \
  Type kf_##name(const Char* text, Char** end, int base) { return floor_##name(text, end, base); }
WIDEST(long, char, strtoimax)
WIDEST(unsigned long, char, strtoumax)
WIDEST(long, wchar_t, wcstoimax)
WIDEST(unsigned long, wchar_t, wcstoumax)

#define SCANNER(From, Char, name)                                                    \
  int floor_v##name(From, const Char*, __builtin_va_list) FLOOR("__isoc99_v" #name); \
  int kf_v##name(From from, const Char* format, __builtin_va_list values)            \
      PROVIDES("__isoc23_v" #name);                                                  \
  int kf_v##name(From from, const Char* format, __builtin_va_list values) {          \
    return floor_v##name(from, format, values);                                      \
  }                                                                                  \
  int kf_##name(From from, const Char* format, ...) PROVIDES("__isoc23_" #name);     \
  int kf_##name(From from, const Char* format, ...) {                                \
    __builtin_va_list values;                                                        \
    __builtin_va_start(values, format);                                              \
    int count = floor_v##name(from, format, values);                                 \
    __builtin_va_end(values);                                                        \
    return count;                                                                    \
  }
SCANNER(const char*, char, sscanf)
SCANNER(void*, char, fscanf)
SCANNER(const wchar_t*, wchar_t, swscanf)
SCANNER(void*, wchar_t, fwscanf)

// ---- GCC 13: compilers call this when an exception leaves a noexcept function.

void* __cxa_begin_catch(void*) noexcept;
void kf_call_terminate(void* exception) noexcept PROVIDES("__cxa_call_terminate");
void kf_call_terminate(void* exception) noexcept {
  if (exception) __cxa_begin_catch(exception);
  std::terminate();
}

}  // extern "C"

// ---- GCC 11: what a container throws when its size overflows.

[[noreturn]] void kf_bad_array_new_length() PROVIDES("_ZSt28__throw_bad_array_new_lengthv");
void kf_bad_array_new_length() { throw std::bad_array_new_length(); }

// ---- GCC 13: the standard streams are ready because the library says so. Older ones are ready
// because somebody has made one of these; 101 is before every constructor of a user.

#if _GLIBCXX_RELEASE >= 13
void kf_ios_base_library_init() PROVIDES("_ZSt21ios_base_library_initv");
void kf_ios_base_library_init() {}
__attribute__((init_priority(101))) static std::ios_base::Init streams_are_ready;
#endif

// ---- GCC 9: string streams got constructors without arguments.

#if _GLIBCXX_RELEASE >= 9
#define HIDDEN(symbol) __asm__(".hidden " symbol);
#define HIDDEN_CONSTRUCTOR(Class) HIDDEN(Class "C1Ev") HIDDEN(Class "C2Ev")
#define HIDDEN_DESTRUCTOR(Class) HIDDEN(Class "D0Ev") HIDDEN(Class "D1Ev") HIDDEN(Class "D2Ev")
#define MANGLED(name, code) "_ZNSt7__cxx11" name "I" code "St11char_traitsI" code "ESaI" code "EE"
#define STRING_STREAMS(Char, code)                                \
  template std::basic_stringbuf<Char>::basic_stringbuf();         \
  template std::basic_istringstream<Char>::basic_istringstream(); \
  template std::basic_ostringstream<Char>::basic_ostringstream(); \
  template std::basic_stringstream<Char>::basic_stringstream();   \
  HIDDEN_CONSTRUCTOR(MANGLED("15basic_stringbuf", code))          \
  HIDDEN_DESTRUCTOR(MANGLED("15basic_stringbuf", code))           \
  HIDDEN_CONSTRUCTOR(MANGLED("19basic_istringstream", code))      \
  HIDDEN_CONSTRUCTOR(MANGLED("19basic_ostringstream", code))      \
  HIDDEN_CONSTRUCTOR(MANGLED("18basic_stringstream", code))
STRING_STREAMS(char, "c")
STRING_STREAMS(wchar_t, "w")
#endif
