// SPDX-License-Identifier: Apache-2.0
// Work that is enqueued once and then, as a whole, again and again: on a GPU that spares the host a launch per op.
//
//   std::unique_ptr<Recording> pass = backend.recorder()->Record([&] { ... backend.MatMul(...) ... });
//   pass->Enqueue();
//
// Threads: the backend's caller.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>

namespace foretoken::kernels {

class Recording {
 public:
  virtual ~Recording() = default;
  // Behind all that has been enqueued. Counts and addresses are those of when it was recorded; what they point to may
  // be new.
  virtual void Enqueue() = 0;
};

class Recorder {
 public:
  virtual ~Recorder() = default;
  // The row counts, ascending, for which a recorded pass is worth having. A pass of fewer rows is padded to the next.
  virtual std::span<const int32_t> row_counts() const = 0;
  // Calls `enqueue`, which does nothing but call ops of the backend that are recordable, and runs none of them. What
  // they do for the first time they do unrecorded.
  virtual std::unique_ptr<Recording> Record(const std::function<void()>& enqueue) = 0;
};

}  // namespace foretoken::kernels
