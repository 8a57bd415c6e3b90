// SPDX-License-Identifier: Apache-2.0
// Shows absl::Mutex to ThreadSanitizer, in every executable of the tsan build.
//
// The distribution's libabsl is not instrumented. So TSan knows nothing of its locks, and would report a race for all
// data that they guard. The functions below have the names of the library's functions, and the dynamic linker takes the
// executable's functions first. They call the library's functions and announce each lock to TSan. This works for our
// code and for gRPC, which uses absl::Mutex too. It hides no race, because only real locks are announced. The library
// evaluates a condition of Await in any thread that releases the lock. TSan ignores that evaluation, as it does in an
// instrumented absl.
//
// TSan still does not see the operations that gRPC orders by atomics alone.
#include <sanitizer/tsan_interface.h>

#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "tests/sanitizers/library_function.h"

namespace {

// The library calls some of its own functions through the linker: AwaitWithTimeout calls AwaitWithDeadline. Only the
// outermost call is announced.
thread_local bool is_announced = false;

// `kind` is __tsan_mutex_read_lock, or 0 for writing.
template <typename Call>
auto Locking(void* mutex, unsigned kind, Call call) {
  if (is_announced) return call();
  is_announced = true;
  __tsan_mutex_pre_lock(mutex, __tsan_mutex_not_static | kind);
  struct End {
    ~End() {
      __tsan_mutex_post_lock(mutex, __tsan_mutex_not_static | kind, 0);
      is_announced = false;
    }
    void* mutex;
    unsigned kind;
  } end{mutex, kind};
  return call();
}

template <typename Call>
void Unlocking(void* mutex, unsigned kind, Call call) {
  if (is_announced) return call();
  is_announced = true;
  __tsan_mutex_pre_unlock(mutex, kind);
  call();
  __tsan_mutex_post_unlock(mutex, kind);
  is_announced = false;
}

// A wait releases the lock and takes it again.
template <typename Call>
auto Waiting(void* mutex, Call call) {
  if (is_announced) return call();
  is_announced = true;
  __tsan_mutex_pre_unlock(mutex, 0);
  __tsan_mutex_post_unlock(mutex, 0);
  __tsan_mutex_pre_lock(mutex, __tsan_mutex_not_static);
  struct End {
    ~End() {
      __tsan_mutex_post_lock(mutex, __tsan_mutex_not_static, 0);
      is_announced = false;
    }
    void* mutex;
  } end{mutex};
  return call();
}

}  // namespace

namespace absl {
ABSL_NAMESPACE_BEGIN

void Mutex::Lock() {
  static const auto next = LibraryFunction(&Mutex::Lock);
  Locking(this, 0, [&] { (this->*next)(); });
}

void Mutex::Unlock() {
  static const auto next = LibraryFunction(&Mutex::Unlock);
  Unlocking(this, 0, [&] { (this->*next)(); });
}

void Mutex::ReaderLock() {
  static const auto next = LibraryFunction(&Mutex::ReaderLock);
  Locking(this, __tsan_mutex_read_lock, [&] { (this->*next)(); });
}

void Mutex::ReaderUnlock() {
  static const auto next = LibraryFunction(&Mutex::ReaderUnlock);
  Unlocking(this, __tsan_mutex_read_lock, [&] { (this->*next)(); });
}

bool Mutex::TryLock() {
  static const auto next = LibraryFunction(&Mutex::TryLock);
  if (is_announced) return (this->*next)();
  is_announced = true;
  constexpr unsigned kFlags = __tsan_mutex_try_lock | __tsan_mutex_not_static;
  __tsan_mutex_pre_lock(this, kFlags);
  const bool is_locked = (this->*next)();
  __tsan_mutex_post_lock(this, is_locked ? kFlags : kFlags | __tsan_mutex_try_lock_failed, 0);
  is_announced = false;
  return is_locked;
}

void Mutex::LockWhen(const Condition& condition) {
  static const auto next = LibraryFunction(&Mutex::LockWhen);
  Locking(this, 0, [&] { (this->*next)(condition); });
}

// These take the lock also if the time runs out.
bool Mutex::LockWhenWithTimeout(const Condition& condition, Duration timeout) {
  static const auto next = LibraryFunction(&Mutex::LockWhenWithTimeout);
  return Locking(this, 0, [&] { return (this->*next)(condition, timeout); });
}

bool Mutex::LockWhenWithDeadline(const Condition& condition, Time deadline) {
  static const auto next = LibraryFunction(&Mutex::LockWhenWithDeadline);
  return Locking(this, 0, [&] { return (this->*next)(condition, deadline); });
}

void Mutex::Await(const Condition& condition) {
  static const auto next = LibraryFunction(&Mutex::Await);
  Waiting(this, [&] { (this->*next)(condition); });
}

bool Mutex::AwaitWithTimeout(const Condition& condition, Duration timeout) {
  static const auto next = LibraryFunction(&Mutex::AwaitWithTimeout);
  return Waiting(this, [&] { return (this->*next)(condition, timeout); });
}

bool Mutex::AwaitWithDeadline(const Condition& condition, Time deadline) {
  static const auto next = LibraryFunction(&Mutex::AwaitWithDeadline);
  return Waiting(this, [&] { return (this->*next)(condition, deadline); });
}

void CondVar::Wait(Mutex* mutex) {
  static const auto next = LibraryFunction(&CondVar::Wait);
  Waiting(mutex, [&] { (this->*next)(mutex); });
}

bool CondVar::WaitWithTimeout(Mutex* mutex, Duration timeout) {
  static const auto next = LibraryFunction(&CondVar::WaitWithTimeout);
  return Waiting(mutex, [&] { return (this->*next)(mutex, timeout); });
}

bool CondVar::WaitWithDeadline(Mutex* mutex, Time deadline) {
  static const auto next = LibraryFunction(&CondVar::WaitWithDeadline);
  return Waiting(mutex, [&] { return (this->*next)(mutex, deadline); });
}

void Notification::Notify() {
  static const auto next = LibraryFunction(&Notification::Notify);
  __tsan_release(this);
  (this->*next)();
}

void Notification::WaitForNotification() const {
  static const auto next = LibraryFunction(&Notification::WaitForNotification);
  (this->*next)();
  __tsan_acquire(const_cast<Notification*>(this));
}

bool Notification::WaitForNotificationWithTimeout(Duration timeout) const {
  static const auto next = LibraryFunction(&Notification::WaitForNotificationWithTimeout);
  const bool is_notified = (this->*next)(timeout);
  if (is_notified) __tsan_acquire(const_cast<Notification*>(this));
  return is_notified;
}

ABSL_NAMESPACE_END
}  // namespace absl
