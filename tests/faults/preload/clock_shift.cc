// SPDX-License-Identifier: Apache-2.0
// A library to preload. It shifts the system's clock of a process by the seconds in the file of the variable
// CLOCK_SHIFT_FILE, a double that a test may change at any time. The steady clock stays right, and the kernel knows
// nothing of the shift: a wait until a time of the shifted clock ends that much later, or at once.
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include <cstdlib>

namespace {

// Read without a lock: a test writes eight aligned bytes at once.
double ShiftSeconds() {
  static const volatile double* const shift = []() -> const volatile double* {
    const char* path = std::getenv("CLOCK_SHIFT_FILE");
    const int file = path == nullptr ? -1 : open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) return nullptr;
    void* data = mmap(nullptr, sizeof(double), PROT_READ, MAP_SHARED, file, 0);
    close(file);
    return data == MAP_FAILED ? nullptr : static_cast<const volatile double*>(data);
  }
  ();
  return shift == nullptr ? 0 : *shift;
}

template <typename Function>
Function* Next(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

}  // namespace

extern "C" {

int clock_gettime(clockid_t clock, timespec* time) noexcept {
  static auto* const next = Next<int(clockid_t, timespec*)>("clock_gettime");
  const int result = next(clock, time);
  if (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE) time->tv_sec += static_cast<time_t>(ShiftSeconds());
  return result;
}

int gettimeofday(timeval* time, void* zone) noexcept {
  static auto* const next = Next<int(timeval*, void*)>("gettimeofday");
  const int result = next(time, zone);
  time->tv_sec += static_cast<time_t>(ShiftSeconds());
  return result;
}

time_t time(time_t* result) noexcept {
  timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  if (result != nullptr) *result = now.tv_sec;
  return now.tv_sec;
}

}  // extern "C"
