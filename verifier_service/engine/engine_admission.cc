// SPDX-License-Identifier: Apache-2.0
// The engine's admission: from the line into the batch, or out, where the deadline is too near or the queue too full.
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/error_text.h"
#include "verifier_service/engine/engine.h"

namespace foretoken::verifier {
namespace {

// One in so many requests whose deadline seems too near goes on all the same. If the forecast is wrong, this corrects
// it, because the forecast learns from steps alone.
constexpr uint32_t kTriedOneIn = 16;

}  // namespace

absl::Status Engine::CheckDeadline(absl::Time deadline, absl::Duration needed, absl::string_view what_for) const {
  if (deadline == absl::InfiniteFuture()) return absl::OkStatus();
  const absl::Duration left = deadline - parts_.now();
  if (left <= absl::ZeroDuration()) return absl::DeadlineExceededError("the call's deadline has passed");
  if (left >= needed) return absl::OkStatus();
  if (num_too_short_.fetch_add(1) % kTriedOneIn == kTriedOneIn - 1) return absl::OkStatus();
  const auto text = [](absl::Duration duration) {
    return absl::FormatDuration(absl::Floor(duration, absl::Milliseconds(1)));
  };
  return base::WithReason(
      absl::ResourceExhaustedError(absl::StrCat("the call's deadline is ", text(left), " away, and this server needs ",
                                                text(needed), " ", what_for)),
      "DEADLINE_TOO_SHORT");
}

// Checks the deadline of a request whose turn has come. While others wait, a request that will hardly end in time is
// refused, so that they get its room. While no sample of a tenant has ended, its requests are not judged by the outputs
// of other tenants: a refused request would never show that its own output is shorter.
absl::Status Engine::CheckTurn(const Sequence& sequence) const {
  const GenerationRequest& request = sequence.request();
  const absl::Duration first_token = forecast_.LeastPromptTime(sequence.size() - sequence.num_computed);
  const std::optional<double> usual_tokens = scheduler_.UsualTokens(request);
  const absl::Duration run = forecast_.RunTime(usual_tokens.value_or(0));
  if (run < first_token || !usual_tokens.has_value() || !scheduler_.OthersNeedRoom(sequence.active.get())) {
    return CheckDeadline(request.deadline, first_token, kFirstToken);
  }
  return CheckDeadline(request.deadline, run, "for an output of the tenant's usual length, while others wait");
}

// Ends waiting requests of tenants above their shares until the queue is within its bounds. The last request of a
// tenant has waited least, or has the lowest priority. A tenant whose requests are all being parsed or have all begun
// can give nothing now.
void Engine::ShedExcess() {
  const auto can_give = [this](absl::string_view tenant) { return scheduler_.LastUnbegun(tenant) != nullptr; };
  while (const std::optional<std::string> tenant = queue_.FurthestAboveShare(can_give)) {
    const std::shared_ptr<ActiveRequest> last = scheduler_.LastUnbegun(*tenant);
    Fail(*last, base::Passing(base::WithReason(
                    absl::ResourceExhaustedError("the queue is full, and the request left its place to a tenant that "
                                                 "has less than its share"),
                    "QUEUE_SHED")));
    last->place = QueuePlace();
  }
}

void Engine::Admit() {
  feature_planes_.Follow(*parts_.proposers);  // before the step computes what a new drafter reads
  Retire();
  scheduler_.ReserveRoots(timer_.entered());  // before admission, so that a new sample is not preempted at once
  AdmitWaiting();
}

void Engine::AdmitWaiting() {
  while (AdmitSome()) Retire();  // the refused requests leave their room to others
  forecast_.ObserveLine(scheduler_.num_left(), scheduler_.OthersNeedRoom(), timer_.entered());
}

// Refuses requests that have too little time before their deadline, and returns whether there were any. Only a
// request's first sample is looked at, when it begins: later a step may be computing one of its samples.
bool Engine::AdmitSome() {
  const absl::Time now = timer_.entered();
  bool has_refused = false;
  const auto begin_next = [this](const std::shared_ptr<ActiveRequest>& active) { return BeginNext(active); };
  const auto forms_may_begin = [this] { return scheduler_.running().empty() || mask_turns_.MayBegin(); };
  for (Sequence* sequence : scheduler_.Admit(now, begin_next, forms_may_begin)) {
    const bool is_first_time = std::exchange(sequence->began, now) == absl::InfinitePast();
    if (sequence->is_finished) continue;                 // its request has just been refused
    if (is_first_time && sequence->sample_index == 0) {  // the request has just left the queue
      if (const absl::Status in_time = CheckTurn(*sequence); !in_time.ok()) {
        Fail(*sequence->active, in_time);
        has_refused = true;
        continue;
      }
    }
    if (is_first_time) {  // later its own rows may be there
      sequence->usage.num_cached_tokens = sequence->num_computed;
      own_stats_.num_cached_tokens += sequence->num_computed;
    }
    if (sequence->active->max_tree_nodes > 0 && !sequence->is_open) OpenAtProposers(*sequence, policy_);
  }
  return has_refused;
}

}  // namespace foretoken::verifier
