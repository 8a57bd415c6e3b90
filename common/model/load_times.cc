// SPDX-License-Identifier: Apache-2.0
#include "common/model/load_times.h"

#include <algorithm>

#include "absl/strings/str_format.h"

namespace foretoken::model {

std::string Describe(const LoadTimes& times) {
  const ReadTimes& reading = times.reading;
  const double gigabytes = static_cast<double>(reading.num_bytes) / 1e9;
  const double percent = 100 / std::max(reading.total(), 1e-9);
  return absl::StrFormat(
      "tokenizer %.2f s; weights %.2f s, %.2f GB at %.2f GB/s (reading %.0f %%, packing %.0f %%, digest %.0f %%, "
      "releasing pages %.0f %%); K/V and tables %.2f s",
      times.tokenizer, times.weights, gigabytes, gigabytes / std::max(times.weights, 1e-9), percent * reading.reading,
      percent * reading.packing, percent * reading.digest, percent * reading.releasing, times.transformer);
}

}  // namespace foretoken::model
