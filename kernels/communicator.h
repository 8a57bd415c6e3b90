// SPDX-License-Identifier: Apache-2.0
// Moves bytes between the ranks of one tensor-parallel group. It never adds: a library's sum picks its order by message
// size, so what has to be summed is gathered, and Backend::SumRanks adds it in the order of the ranks (E1).
//
// Every rank has an object of its own and calls the same operations in the same order. They are enqueued like the ops
// of the rank's backend, behind those that came before and ahead of those that follow. Memory is the backend's.
// Errors: a transport that fails ends the process. Threads: one caller per rank, all ranks at the same time.
#pragma once

#include <cstddef>

namespace foretoken::kernels {

class Communicator {
 public:
  virtual ~Communicator() = default;

  virtual int rank() const = 0;
  virtual int num_ranks() const = 0;
  // Whether the operations only enqueue, so that a Recorder may record them. All ranks record at the same time.
  virtual bool is_recordable() const = 0;

  // `pieces` has room for num_ranks() pieces of num_bytes, by rank. This rank's own is in its place; the others' come.
  virtual void AllGather(void* pieces, size_t num_bytes) = 0;

  // The same, but for rank 0 alone: on the other ranks `pieces` is their own piece and nothing else.
  virtual void GatherToFirst(void* pieces, size_t num_bytes) = 0;
};

}  // namespace foretoken::kernels
