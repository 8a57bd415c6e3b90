// SPDX-License-Identifier: Apache-2.0
// The place where the filters cut a row: the last kept token in the order of cuts (value descending, id ascending).
#pragma once

#include <cstdint>
#include <limits>

#include "kernels/host_device.h"

namespace foretoken::kernels {

struct FilterCut {
  float value = -std::numeric_limits<float>::infinity();
  int32_t id = std::numeric_limits<int32_t>::max();

  FT_HOST_DEVICE bool Keeps(float other_value, int32_t other_id) const {
    return other_value > value || (other_value == value && other_id <= id);
  }
};

}  // namespace foretoken::kernels
