// SPDX-License-Identifier: Apache-2.0
// A ForwardBatch on the device. Its arrays lie end to end in one allocation, those whose lengths are counts first: two
// batches of equal counts have every array at the same place, so a pass that is recorded with one can be replayed with
// the other.
//
//   DeviceBatch device_batch(backend, min_capacity);
//   const DeviceBatch::View view = device_batch.Upload(PadBatch(batch, padding));
//
// Threads: the backend's caller.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/model/forward_batch.h"
#include "kernels/backend.h"

namespace foretoken::model {

struct BatchPadding {
  int32_t num_rows = 0;      // at least the batch's
  int32_t num_segments = 0;  // at least the batch's, and one for rows that pad
  int32_t spare_block = 0;   // K/V that no sequence has
};

// The batch with rows behind it that mean nothing, together one sequence, empty segments behind these, and logits for
// as many rows: all its counts are those of the padding. Rows that it had before compute what they did.
ForwardBatch PadBatch(ForwardBatch batch, const BatchPadding& padding);

class DeviceBatch {
 public:
  struct View {
    kernels::BatchView batch;
    const int32_t* logit_rows = nullptr;
    int32_t num_logit_rows = 0;

    friend bool operator==(const View&, const View&) = default;
  };

  // Room for so many integers from the start; grown where a batch has more, and then everything lies elsewhere. What
  // was outgrown stays until the end, together less than what is used: giving memory back would wait for the device,
  // and on GPUs that reach into each other's memory for those of other ranks, which may be waiting for this one.
  DeviceBatch(kernels::Backend& backend, size_t min_capacity);

  // Valid until the next.
  View Upload(const ForwardBatch& batch);

 private:
  kernels::Backend& backend_;
  std::vector<int32_t> staging_;
  std::vector<kernels::Buffer> buffers_;  // the last is used
  size_t capacity_;                       // integers
};

}  // namespace foretoken::model
