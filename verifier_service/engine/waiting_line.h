// SPDX-License-Identifier: Apache-2.0
// The line of requests that wait to run. Tenants take turns by their weights (fair_turns.h), so a flood of one tenant
// leaves the others their share. Priorities order the requests of one tenant, and say nothing to other tenants.
//
// Within a tenant a request's place is the start of its wait. A level of priority counts as `priority_aging` of
// waiting. So a higher priority goes first, but a request that has waited long enough goes before new requests of any
// priority. No request waits forever. When a sample of a request begins, the request's other samples move to the end of
// their tenant's line, as if they had just arrived. So requests take turns for any number of samples. A preempted
// sample returns to the place that it began from.
//
// A tenant pays in tokens: for the rows of the prompt that are not cached when a sample begins, and for the tokens that
// the sample generates. Nobody knows their number before. So a sample pays ahead for as many tokens as its tenant's
// samples generated lately, pays again when they are used up, and gets the rest back at its end. What is computed again
// after a preemption costs nothing. Masks that are slow to make delay every sample, so they cost as many tokens as
// would have been made in their time (grammar_masks.h). A tenant with max_running_samples running samples does not take
// turns.
//
// The line forgets a tenant that neither waits nor runs, but for the usual length of its outputs (usual_lengths.h).
//
// Cost: O(log n) for each call; Next passes over entries that may not begin. Threads: the engine's.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "verifier_service/engine/fair_turns.h"
#include "verifier_service/engine/sequence.h"
#include "verifier_service/request/active_request.h"
#include "verifier_service/request/tenant_shares.h"
#include "verifier_service/request/usual_lengths.h"

namespace foretoken::verifier {

class WaitingLine {
 public:
  struct Entry {
    std::shared_ptr<ActiveRequest> active;
    Sequence* preempted = nullptr;  // null: the request's samples that have not begun
    absl::Time since;               // its arrival, or the last time its request began a sample
  };
  using Entries = std::map<LinePlace, Entry>;

  explicit WaitingLine(absl::Duration priority_aging, TenantShares tenants = {});

  bool empty() const { return num_entries_ == 0; }
  // Returns the entry whose turn it is among the entries that may begin, or null.
  const Entries::value_type* Next(const std::function<bool(const Entry&)>& may_begin) const;
  // Whether there is such an entry.
  bool Any(const std::function<bool(const Entry&)>& condition) const;
  // Returns the tenant's last request of which no sample has begun, or null.
  std::shared_ptr<ActiveRequest> LastUnbegun(absl::string_view tenant) const;

  // Adds the request's samples that have not begun.
  void Join(std::shared_ptr<ActiveRequest> active, absl::Time now);
  // Adds a running sequence that is preempted now. Call it before the sequence loses its K/V.
  void Return(Sequence& preempted, absl::Time now);
  // Begins this sample of an entry, which has the K/V of its cached prefix. Removes the entry, so `next` ends.
  void Begin(const Entries::value_type& next, Sequence& sequence, absl::Time now);
  // A running sequence goes on. It pays if it has used up what it paid for.
  void GoOn(Sequence& running);
  // A running sequence has delayed the others for as long as so many tokens take.
  void Charge(const Sequence& running, double num_tokens);
  // A running sequence has ended.
  void End(Sequence& running);
  // Removes a request's samples that have not begun, or a preempted sequence. Running sequences stay.
  void Leave(ActiveRequest& active);
  void Leave(Sequence& preempted);

  // The entries that have left the line since the start, because a sample began or was dropped.
  uint64_t num_left() const { return num_left_; }
  // The tenants that wait or run.
  size_t num_tenants() const { return lines_.size(); }
  // The tokens that a sample of this request will generate if it is like its tenant's last ones. Unset: nothing is
  // known of the tenant's.
  std::optional<double> UsualTokens(const GenerationRequest& request) const;
  double WeightOf(const std::string& tenant) const { return tenants_.weights.Of(tenant); }

  // The priority, plus a level for each priority_aging of waiting. The scheduler preempts the lowest.
  int64_t EffectivePriority(const Sequence& sequence) const;

 private:
  struct TenantLine : TurnAccount {
    std::string name;
    Entries entries;
    int32_t num_running = 0;
  };

  TenantLine& LineOf(const std::string& tenant);
  void Put(std::shared_ptr<ActiveRequest> active, absl::Time now, TenantLine& line);
  void Take(LinePlace place, TenantLine& line);
  void PayAhead(Sequence& sequence, int32_t num_prompt_rows, TenantLine& line);
  void GiveBackRest(Sequence& sequence, TenantLine& line);
  // Call after each change of a tenant's entries or running samples. May destroy the line.
  void Update(TenantLine& line);

  const absl::Duration priority_aging_;
  const TenantShares tenants_;
  absl::flat_hash_map<std::string, std::unique_ptr<TenantLine>> lines_;
  FairTurns turns_;
  size_t num_entries_ = 0;
  uint64_t next_number_ = 0;
  uint64_t num_left_ = 0;
  UsualLengths usual_;
};

}  // namespace foretoken::verifier
