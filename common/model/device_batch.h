// SPDX-License-Identifier: Apache-2.0
// A ForwardBatch on the device. Its arrays lie end to end in one allocation. Arrays whose lengths are counts come
// first, so two batches of equal counts have every array at the same place. A pass recorded with one batch can then be
// replayed with the other.
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
  int32_t num_segments = 0;  // at least the batch's, plus one for padding rows
  int32_t spare_block = 0;   // K/V that no sequence uses
};

// Adds rows, empty segments and logit rows until the batch has the padding's counts. The padding rows mean nothing, and
// together they are one sequence. The rows that the batch had before compute the same as without padding.
ForwardBatch PadBatch(ForwardBatch batch, const BatchPadding& padding);

class DeviceBatch {
 public:
  struct View {
    kernels::BatchView batch;
    const int32_t* logit_rows = nullptr;
    int32_t num_logit_rows = 0;

    friend bool operator==(const View&, const View&) = default;
  };

  // Allocates space for this many integers. If a batch needs more, it allocates anew, and then every array has a new
  // address. It keeps the old memory until it is destroyed (in sum less than the memory in use). Freeing memory waits
  // for the device. On GPUs that access each other's memory it also waits for the GPUs of other ranks, which may be
  // waiting for this rank.
  DeviceBatch(kernels::Backend& backend, size_t min_capacity);

  // The view is valid until the next call.
  View Upload(const ForwardBatch& batch);

 private:
  kernels::Backend& backend_;
  std::vector<int32_t> staging_;
  std::vector<kernels::Buffer> buffers_;  // the last one is in use
  size_t capacity_;                       // integers
};

}  // namespace foretoken::model
