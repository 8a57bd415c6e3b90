// SPDX-License-Identifier: Apache-2.0
#include "verifier_service/api/compile_queue.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/error_text.h"

namespace foretoken::verifier {
namespace {

absl::Status Full(absl::string_view what) {
  return base::Passing(
      base::WithReason(absl::ResourceExhaustedError(absl::StrCat("response_format: ", what)), "GRAMMARS_FULL"));
}

}  // namespace

CompileQueue::CompileQueue(int32_t num_places) : num_places_(num_places), thread_([this] { Run(); }) {}

CompileQueue::~CompileQueue() {
  {
    absl::MutexLock lock(&mutex_);
    is_stopping_ = true;
  }
  thread_.join();
}

absl::Status CompileQueue::Push(const std::string& tenant, uint64_t ticket, Work work) {
  absl::MutexLock lock(&mutex_);
  if (num_taken_ >= num_places_) return Full(absl::StrCat(num_places_, " formats wait to be compiled"));
  Tenant& of_tenant = tenants_[tenant];
  if (of_tenant.num_places >= std::max(num_places_ / 2, 1)) {
    return Full(absl::StrCat(of_tenant.num_places, " formats of this tenant wait to be compiled"));
  }
  ++num_taken_;
  ++of_tenant.num_places;
  if (of_tenant.waiting.empty()) turns_.Enter(of_tenant.account);
  of_tenant.waiting.emplace(ticket, Job{.work = std::move(work), .place = Place(this, Leave{tenant})});
  return absl::OkStatus();
}

bool CompileQueue::Remove(uint64_t ticket) {
  Job removed;  // destroyed without the lock, because it gives its place back and may end a call
  absl::MutexLock lock(&mutex_);
  for (auto& [name, tenant] : tenants_) {
    const auto job = tenant.waiting.find(ticket);
    if (job == tenant.waiting.end()) continue;
    removed = Take(tenant, job);
    return true;
  }
  return false;
}

CompileQueue::Job CompileQueue::Take(Tenant& tenant, std::map<uint64_t, Job>::iterator job) {
  Job taken = std::move(tenant.waiting.extract(job).mapped());
  if (tenant.waiting.empty()) turns_.Leave(tenant.account);
  return taken;
}

CompileQueue::Job CompileQueue::TakeNext() {
  TurnAccount* const next = turns_.order().begin()->second;
  Tenant& tenant = std::ranges::find(tenants_, next, [](auto& entry) { return &entry.second.account; })->second;
  turns_.Charge(tenant.account, /*work=*/1);
  return Take(tenant, tenant.waiting.begin());
}

void CompileQueue::Run() {
  for (;;) {
    Job job;
    {
      absl::MutexLock lock(&mutex_);
      mutex_.Await(absl::Condition(this, &CompileQueue::HasWork));
      if (turns_.order().empty()) return;
      job = TakeNext();
    }
    job.work(std::move(job.place));
  }
}

void CompileQueue::GiveBack(const std::string& tenant) {
  absl::MutexLock lock(&mutex_);
  --num_taken_;
  const auto of_tenant = tenants_.find(tenant);
  if (--of_tenant->second.num_places == 0) tenants_.erase(of_tenant);
}

}  // namespace foretoken::verifier
