// SPDX-License-Identifier: Apache-2.0
// Sends an op's host arrays to the device in one copy. The caller adds each array with the place for its device
// pointer, and sends all together.
//
//   StagedUpload upload;
//   upload.Add(std::span(rows), &args.rows);
//   upload.Send(device);               // from here on args.rows points to the device's copy
//
// The arrays may change after Send. The device's memory stays valid for work enqueued before this object ends.
#pragma once

#include <cstddef>
#include <cstring>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "kernels/cuda/base/device.h"
#include "kernels/cuda/base/stream_scratch.h"

namespace foretoken::kernels::cuda {

class StagedUpload {
 public:
  // Send writes `place`, which must live until then.
  template <typename T>
  void Add(std::span<const T> array, const T** place) {
    parts_.push_back({array.data(), array.size_bytes(), num_bytes_,
                      [place](const std::byte* at) { *place = reinterpret_cast<const T*>(at); }});
    constexpr size_t kAlignment = 16;
    num_bytes_ += (array.size_bytes() + kAlignment - 1) / kAlignment * kAlignment;
  }

  void Send(Device& device) {
    if (num_bytes_ == 0) return;
    scratch_.emplace(num_bytes_, device.stream());
    auto* staged = static_cast<std::byte*>(device.Pinned(num_bytes_));
    for (const Part& part : parts_) {
      if (part.num_bytes > 0) std::memcpy(staged + part.offset, part.data, part.num_bytes);
      part.set_place(static_cast<std::byte*>(scratch_->data()) + part.offset);
    }
    device.Copy(scratch_->data(), staged, num_bytes_, CopyKind::kToDevice);
  }

 private:
  struct Part {
    const void* data;
    size_t num_bytes;
    size_t offset;
    std::function<void(const std::byte*)> set_place;
  };

  std::vector<Part> parts_;
  size_t num_bytes_ = 0;
  std::optional<StreamScratch> scratch_;
};

}  // namespace foretoken::kernels::cuda
