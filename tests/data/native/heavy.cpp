// SPDX-License-Identifier: Apache-2.0
// Uses much of C++17, most of it newer than the ABI floor. Every function returns a number that its
// test knows.
#include <sys/stat.h>

#include <any>
#include <atomic>
#include <charconv>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <future>
#include <iostream>
#include <memory_resource>
#include <mutex>
#include <random>
#include <regex>
#include <shared_mutex>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <variant>
#include <vector>

namespace fs = std::filesystem;
using namespace std::chrono_literals;
thread_local int per_thread = 3;
struct Global {
  std::string s = "global";
  ~Global() { std::cout << "closed" << std::endl; }
} global;

extern "C" int files(const char* dir) {
  fs::path p = fs::path(dir) / "a" / "b";
  fs::create_directories(p);
  std::ofstream(p / "f.txt") << "hello";
  int n = 0;
  for (auto& e : fs::recursive_directory_iterator(dir))
    n += fs::is_regular_file(e) ? int(fs::file_size(e)) : 100;
  struct stat st;
  if (::stat(dir, &st) || !S_ISDIR(st.st_mode)) return -1;
  fs::remove_all(fs::path(dir) / "a");
  return n;
}
extern "C" int numbers() {
  char buf[64];
  auto r = std::to_chars(buf, buf + 64, 3.25);
  double d = 0;
  std::from_chars(buf, r.ptr, d);
  std::stringstream ss;
  ss << d << ' ' << 7;
  double x;
  int y;
  ss >> x >> y;
  std::istringstream is;
  std::ostringstream os;
  std::wstringstream ws;
  ws << L"w";
  std::pmr::monotonic_buffer_resource pool;
  std::pmr::vector<int> v(&pool);
  v.assign(10, 4);
  std::smatch m;
  std::string t = "ab12";
  std::regex_search(t, m, std::regex("([0-9]+)"));
  std::random_device rd;
  volatile unsigned u = rd();
  (void)u;
  return int(x * 100) + y + v[9] + std::stoi(m[1]) + int(std::strtol("5", nullptr, 10)) +
         int(std::pow(2.0, v[0]) + std::exp(0.0));
}
extern "C" int threads() {
  std::mutex m;
  std::condition_variable cv;
  bool ready = false;
  std::atomic<int> sum{0};
  std::vector<std::thread> ts;
  for (int i = 0; i < 4; i++)
    ts.emplace_back([&] {
      std::unique_lock l(m);
      cv.wait(l, [&] { return ready; });
      per_thread += 1;
      sum += per_thread;
    });
  {
    std::lock_guard l(m);
    ready = true;
  }
  cv.notify_all();
  for (auto& t : ts) t.join();
  std::unique_lock l(m);
  bool timed_out = cv.wait_for(l, 30ms, [] { return false; }) == false;
  auto start = std::chrono::steady_clock::now();
  std::timed_mutex tm;
  tm.lock();
  std::thread([&] {
    if (tm.try_lock_for(40ms)) sum += 1000;
  }).join();
  if (std::chrono::steady_clock::now() - start < 35ms) sum += 5000;
  std::shared_timed_mutex sm;
  sm.lock();
  std::thread([&] {
    if (sm.try_lock_shared_for(10ms)) sum += 1000;
  }).join();
  auto f = std::async(std::launch::async, [] { return 5; });
  std::once_flag once;
  std::call_once(once, [&] { sum += 1; });
  return sum + f.get() + (timed_out ? 100 : 0);
}
extern "C" int errors() {
  int n = 0;
  try {
    throw std::runtime_error("x");
  } catch (const std::exception& e) {
    n += 1;
  }
  try {
    std::vector<int>().at(4);
  } catch (const std::out_of_range& e) {
    n += 10;
  }
  std::exception_ptr p;
  try {
    throw 5;
  } catch (...) {
    p = std::current_exception();
  }
  try {
    std::rethrow_exception(p);
  } catch (int i) {
    n += i * 100;
  }
  try {
    std::get<int>(std::variant<int, char>('c'));
  } catch (const std::bad_variant_access&) {
    n += 1000;
  }
  try {
    n += int(fs::file_size("/nonexistent"));
  } catch (const fs::filesystem_error&) {
    n += 2000;
  }
  try {
    volatile long big = -1;
    new int[big];
  } catch (const std::bad_array_new_length&) {
    n += 4000;
  } catch (const std::bad_alloc&) {
    n += 9;
  }
  try {
    std::any_cast<int>(std::any(2.0));
  } catch (const std::bad_any_cast&) {
    n += 10000;
  }
  return n;
}
