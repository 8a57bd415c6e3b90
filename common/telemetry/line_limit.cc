// SPDX-License-Identifier: Apache-2.0
#include "common/telemetry/line_limit.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace foretoken::telemetry {

std::optional<std::string> LineLimit::Pass(std::string line, absl::Time now) {
  const int64_t num_earned = std::min<int64_t>((now - earning_since_) / kPeriod, kBurst - num_saved_);
  num_saved_ += static_cast<int>(num_earned);
  earning_since_ = num_saved_ == kBurst ? now : earning_since_ + num_earned * kPeriod;  // a full saving earns no more
  if (num_saved_ == 0) {
    LeaveOut();
    return std::nullopt;
  }
  --num_saved_;
  if (num_left_out_ > 0) absl::StrAppend(&line, " (", std::exchange(num_left_out_, 0), " lines were left out)");
  return line;
}

}  // namespace foretoken::telemetry
