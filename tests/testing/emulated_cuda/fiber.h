// SPDX-License-Identifier: Apache-2.0
// A function on a stack of its own, which can be left at any depth and resumed there: a boost::context::fiber, whose
// switches make no system call, and of whose switches the sanitizers are told. Below the stack is a page that nobody
// may touch.
// Threads: any, one at a time.
#pragma once

#include <boost/context/fiber.hpp>
#include <boost/context/stack_context.hpp>
#include <cstddef>

namespace foretoken::testing {

class Fiber {
 public:
  // Of a function that does not return.
  explicit Fiber(void (*body)());
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // Runs it, from where it was left, until it leaves again.
  void Resume();
  // Of the fiber that runs: goes back to where it was resumed.
  void Leave();

 private:
  void Arrive(void* fake_stack);

  const boost::context::stack_context stack_;
  boost::context::fiber inside_;   // where it was left
  boost::context::fiber outside_;  // where it was resumed
  // The two stacks as thread sanitizer and address sanitizer know them.
  void* const inside_thread_;
  void* outside_thread_ = nullptr;
  const void* outside_bottom_ = nullptr;
  size_t outside_bytes_ = 0;
};

}  // namespace foretoken::testing
