// SPDX-License-Identifier: Apache-2.0
#include "common/tracing/sampler.h"

#include <cmath>

#include "absl/strings/numbers.h"
#include "absl/strings/strip.h"

namespace foretoken::tracing {
namespace {

constexpr int kNumRandomBytes = 7;

}  // namespace

absl::StatusOr<Sampler> Sampler::Parse(absl::string_view name, absl::string_view argument) {
  Sampler sampler;
  absl::string_view rule = name;
  sampler.follows_caller_ = absl::ConsumePrefix(&rule, "parentbased_");
  double ratio = 1;
  if (rule == "always_off") {
    ratio = 0;
  } else if (rule == "traceidratio") {
    if (!argument.empty() && (!absl::SimpleAtod(argument, &ratio) || !(ratio >= 0 && ratio <= 1))) {
      return absl::InvalidArgumentError("the ratio of sampled traces: expected 0 to 1");
    }
  } else if (rule != "always_on") {
    return absl::InvalidArgumentError(
        "the sampler of traces: expected always_on, always_off or traceidratio, or one of these after parentbased_");
  }
  sampler.threshold_ = static_cast<uint64_t>(std::llround(std::ldexp(1 - ratio, 8 * kNumRandomBytes)));
  return sampler;
}

bool Sampler::Samples(const std::optional<TraceContext>& caller, const TraceId& trace_id) const {
  if (follows_caller_ && caller.has_value()) return caller->is_sampled();
  uint64_t random = 0;
  for (size_t i = trace_id.size() - kNumRandomBytes; i < trace_id.size(); ++i) random = random << 8 | trace_id[i];
  return random >= threshold_;
}

}  // namespace foretoken::tracing
