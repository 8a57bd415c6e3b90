// SPDX-License-Identifier: Apache-2.0
// Moves bytes between the ranks of one tensor-parallel group. It never adds. A library's sum chooses its order by
// message size; so ranks gather the parts of a sum, and Backend::SumRanks adds them in the order of the ranks (E1).
//
// Every rank has an object of its own and calls the same operations in the same order. Operations are enqueued like the
// ops of the rank's backend, in order with them. All memory belongs to the backend.
// Errors: a failed transport ends the process.
// Threads: one caller per rank, all ranks at the same time.
#pragma once

#include <cstddef>

namespace foretoken::kernels {

class Communicator {
 public:
  virtual ~Communicator() = default;

  virtual int rank() const = 0;
  virtual int num_ranks() const = 0;
  // Whether the operations only enqueue, so that a Recorder may record them. All ranks then record at the same time.
  virtual bool is_recordable() const = 0;

  // `pieces` has room for num_ranks() pieces of num_bytes, by rank. This rank's piece is in its place already; the call
  // fills in the others'.
  virtual void AllGather(void* pieces, size_t num_bytes) = 0;

  // The same, for rank 0 alone. On the other ranks `pieces` holds only their own piece.
  virtual void GatherToFirst(void* pieces, size_t num_bytes) = 0;
};

}  // namespace foretoken::kernels
