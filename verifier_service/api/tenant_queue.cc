// SPDX-License-Identifier: Apache-2.0
#include "verifier_service/api/tenant_queue.h"

#include <algorithm>
#include <utility>

namespace foretoken::verifier {

TenantQueue::TenantQueue(int num_threads) {
  for (int i = 0; i < num_threads; ++i) threads_.emplace_back([this] { Run(); });
}

TenantQueue::~TenantQueue() {
  {
    absl::MutexLock lock(&mutex_);
    is_stopping_ = true;
  }
  for (std::thread& thread : threads_) thread.join();
}

void TenantQueue::Push(const Entry& entry, Work work) {
  absl::MutexLock lock(&mutex_);
  Tenant& tenant = tenants_[entry.tenant];
  if (tenant.waiting.empty()) turns_.Enter(tenant.account);
  tenant.waiting.emplace(entry.ticket, Job{.work = std::move(work), .cost = entry.cost});
}

bool TenantQueue::Remove(Ticket ticket) {
  Job removed;  // destroyed without the lock, because it may end a call
  absl::MutexLock lock(&mutex_);
  for (auto tenant = tenants_.begin(); tenant != tenants_.end(); ++tenant) {
    const auto job = tenant->second.waiting.find(ticket);
    if (job == tenant->second.waiting.end()) continue;
    removed = Take(tenant->second, job);
    ForgetIfIdle(tenant);
    return true;
  }
  return false;
}

TenantQueue::Job TenantQueue::Take(Tenant& tenant, std::map<Ticket, Job>::iterator job) {
  Job taken = std::move(tenant.waiting.extract(job).mapped());
  if (tenant.waiting.empty()) turns_.Leave(tenant.account);
  return taken;
}

TenantQueue::Tenants::iterator TenantQueue::NextTenant() {
  TurnAccount* const next = turns_.order().begin()->second;
  return std::ranges::find(tenants_, next, [](auto& entry) { return &entry.second.account; });
}

void TenantQueue::ForgetIfIdle(Tenants::iterator tenant) {
  if (tenant->second.waiting.empty() && tenant->second.num_running == 0) tenants_.erase(tenant);
}

void TenantQueue::Run() {
  for (;;) {
    Job job;
    Tenants::iterator tenant;
    {
      absl::MutexLock lock(&mutex_);
      mutex_.Await(absl::Condition(this, &TenantQueue::HasWork));
      if (turns_.order().empty()) return;
      tenant = NextTenant();
      const auto first = tenant->second.waiting.begin();
      turns_.Charge(tenant->second.account, first->second.cost);  // before Take, which may end its wish for turns
      job = Take(tenant->second, first);
      ++tenant->second.num_running;
    }
    job.work();
    absl::MutexLock lock(&mutex_);
    --tenant->second.num_running;
    ForgetIfIdle(tenant);
  }
}

}  // namespace foretoken::verifier
