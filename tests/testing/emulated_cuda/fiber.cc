// SPDX-License-Identifier: Apache-2.0
#include "tests/testing/emulated_cuda/fiber.h"

#include <boost/context/preallocated.hpp>
#include <boost/context/protected_fixedsize_stack.hpp>
#include <memory>
#include <utility>

// From <sanitizer/common_interface_defs.h> and <sanitizer/tsan_interface.h>. Null in programs without sanitizers.
// NOLINTBEGIN(bugprone-reserved-identifier): the names are the sanitizers'
extern "C" {
[[gnu::weak]] void __sanitizer_start_switch_fiber(void** fake_stack, const void* bottom, size_t num_bytes);
[[gnu::weak]] void __sanitizer_finish_switch_fiber(void* fake_stack, const void** old_bottom, size_t* old_num_bytes);
[[gnu::weak]] void* __tsan_get_current_fiber();
[[gnu::weak]] void* __tsan_create_fiber(unsigned flags);
[[gnu::weak]] void __tsan_switch_to_fiber(void* fiber, unsigned flags);
}
// NOLINTEND(bugprone-reserved-identifier)

namespace foretoken::testing {
namespace {

using boost::context::preallocated;
using boost::context::protected_fixedsize_stack;

constexpr size_t kStackBytes = size_t{64} << 10;

// Must be the last call on a stack before a switch. Returns the value that the address sanitizer needs when the stack
// runs again.
void* Depart(void* to_thread, const void* to_bottom, size_t to_bytes) {
  void* fake_stack = nullptr;
  if (__sanitizer_start_switch_fiber != nullptr) __sanitizer_start_switch_fiber(&fake_stack, to_bottom, to_bytes);
  if (__tsan_switch_to_fiber != nullptr) __tsan_switch_to_fiber(to_thread, 0);
  return fake_stack;
}

}  // namespace

Fiber::Fiber(void (*body)())
    : stack_(protected_fixedsize_stack(kStackBytes).allocate()),
      inside_(std::allocator_arg, preallocated(stack_.sp, stack_.size, stack_), protected_fixedsize_stack(),
              [this, body](boost::context::fiber&& outside) {
                outside_ = std::move(outside);
                Arrive(nullptr);
                body();
                return std::move(outside_);
              }),
      inside_thread_(__tsan_create_fiber == nullptr ? nullptr : __tsan_create_fiber(0)) {}

void Fiber::Resume() {
  if (__tsan_get_current_fiber != nullptr) outside_thread_ = __tsan_get_current_fiber();
  void* const fake_stack = Depart(inside_thread_, static_cast<char*>(stack_.sp) - stack_.size, stack_.size);
  inside_ = std::move(inside_).resume();
  if (__sanitizer_finish_switch_fiber != nullptr) __sanitizer_finish_switch_fiber(fake_stack, nullptr, nullptr);
}

void Fiber::Leave() {
  void* const fake_stack = Depart(outside_thread_, outside_bottom_, outside_bytes_);
  outside_ = std::move(outside_).resume();
  Arrive(fake_stack);
}

// Called first after a switch to the fiber's stack.
void Fiber::Arrive(void* fake_stack) {
  if (__sanitizer_finish_switch_fiber == nullptr) return;
  __sanitizer_finish_switch_fiber(fake_stack, &outside_bottom_, &outside_bytes_);
}

}  // namespace foretoken::testing
