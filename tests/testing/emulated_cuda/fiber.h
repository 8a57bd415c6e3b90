// SPDX-License-Identifier: Apache-2.0
// A function with its own stack, which can be left at any depth and resumed there. It is a boost::context::fiber, whose
// switches make no system call. The class reports the switches to the sanitizers. Below the stack is a guard page.
// Threads: any, one at a time.
#pragma once

#include <boost/context/fiber.hpp>
#include <boost/context/stack_context.hpp>
#include <cstddef>

namespace foretoken::testing {

class Fiber {
 public:
  // `body` must not return.
  explicit Fiber(void (*body)());
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // Runs the function from its last Leave to its next Leave.
  void Resume();
  // Called inside the fiber: returns to the caller of Resume.
  void Leave();

 private:
  void Arrive(void* fake_stack);

  const boost::context::stack_context stack_;
  boost::context::fiber inside_;   // the point of the last Leave
  boost::context::fiber outside_;  // the point of the last Resume
  // The two stacks in the form of the thread sanitizer and the address sanitizer.
  void* const inside_thread_;
  void* outside_thread_ = nullptr;
  const void* outside_bottom_ = nullptr;
  size_t outside_bytes_ = 0;
};

}  // namespace foretoken::testing
