// SPDX-License-Identifier: Apache-2.0
#include "verifier_service/engine/waiting_line.h"

#include <utility>

#include "kernels/check.h"

namespace foretoken::verifier {

void WaitingLine::Join(std::shared_ptr<ActiveRequest> active, absl::Time now) {
  FT_CHECK(!active->line_place.has_value());
  const LinePlace place = {.time = now - active->request->priority * priority_aging_, .number = next_number_++};
  active->line_place = place;
  entries_.emplace(place, Entry{.active = std::move(active), .since = now});
}

void WaitingLine::Return(Sequence& preempted, absl::Time now) {
  preempted.active->place.ReturnSample();
  entries_.emplace(preempted.line_place, Entry{.active = preempted.active, .preempted = &preempted, .since = now});
}

absl::Duration WaitingLine::Begin(LinePlace place, absl::Time now) {
  const Entry entry = std::move(entries_.extract(place).mapped());
  ++num_left_;
  ActiveRequest& active = *entry.active;
  active.place.BeginSample();
  if (entry.preempted == nullptr) {
    active.line_place.reset();
    if (++active.num_begun < active.request->num_samples) Join(entry.active, now);
  }
  return now - entry.since;
}

void WaitingLine::Leave(ActiveRequest& active) {
  if (active.line_place.has_value()) num_left_ += entries_.erase(*active.line_place);
  active.line_place.reset();
}

int64_t WaitingLine::EffectivePriority(const Sequence& sequence) const {
  absl::Duration rest;
  return sequence.request().priority + absl::IDivDuration(sequence.waited, priority_aging_, &rest);
}

}  // namespace foretoken::verifier
