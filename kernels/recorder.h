// SPDX-License-Identifier: Apache-2.0
// Records enqueued work once and enqueues it again as a whole. On a GPU this spares the host one launch per op.
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
  // Enqueues the recorded work behind everything enqueued so far. Counts and addresses stay as recorded; the memory at
  // those addresses may have new contents.
  virtual void Enqueue() = 0;
};

class Recorder {
 public:
  virtual ~Recorder() = default;
  // The row counts, ascending, for which a recorded pass is worth having. A pass of fewer rows is padded to the next.
  virtual std::span<const int32_t> row_counts() const = 0;
  // Records the ops that `enqueue` calls, without running them. `enqueue` may only call recordable ops of the backend.
  // An op does its first-time work (such as loading code) outside of the recording.
  virtual std::unique_ptr<Recording> Record(const std::function<void()>& enqueue) = 0;
};

}  // namespace foretoken::kernels
