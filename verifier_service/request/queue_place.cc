// SPDX-License-Identifier: Apache-2.0
#include "verifier_service/request/queue_place.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/error_text.h"
#include "common/base/status_macros.h"
#include "kernels/check.h"

namespace foretoken::verifier {
namespace {

// The average of text in natural and programming languages, and the size of an id in a message.
constexpr int64_t kBytesPerToken = 4;

// The queue may exceed its bounds so far until the engine's next step.
constexpr int64_t kMostOverflow = 2;

struct Lack {
  absl::string_view whose;  // queue
  absl::string_view bound;
  int64_t most = 0;
  int64_t num_waiting = 0;
  int64_t number = 0;  // of the request
};

absl::Status Refuse(const Lack& lack, absl::string_view reason) {
  return base::Passing(base::WithReason(
      absl::ResourceExhaustedError(absl::StrCat(lack.whose, " is full: ", lack.bound, " is ", lack.most, ", ",
                                                lack.num_waiting, " wait, and the request has ", lack.number)),
      reason));
}

}  // namespace

const QueueSpace::Bound QueueSpace::kRequests = {"max_queued_requests", &QueueLoad::num_requests};
const QueueSpace::Bound QueueSpace::kSamples = {"max_queued_samples", &QueueLoad::num_samples};
const QueueSpace::Bound QueueSpace::kTokens = {"max_queued_tokens", &QueueLoad::num_tokens};

QueueSpace::QueueSpace(const QueueLoad& most, TenantShares tenants) : most_(most), shares_(std::move(tenants)) {}

absl::StatusOr<QueuePlace> QueueSpace::Reserve(int64_t num_bytes, absl::string_view tenant_name, int64_t num_samples) {
  const int64_t num_tokens = num_bytes / kBytesPerToken;
  absl::MutexLock lock(&mutex_);
  Tenant& tenant = Hold(tenant_name);
  const std::pair<const Bound&, int64_t> parts[] = {{kRequests, 1}, {kSamples, num_samples}, {kTokens, num_tokens}};
  for (size_t i = 0; i < std::size(parts); ++i) {
    const absl::Status added = Add(parts[i].first, parts[i].second, tenant);
    if (added.ok()) continue;
    while (i-- > 0) Change(parts[i].first, -NumCounted(parts[i].first, parts[i].second), tenant);
    LetGo(tenant);
    return added;
  }
  QueuePlace place(this, &tenant);
  place.num_samples_ = num_samples;
  place.num_tokens_ = NumCounted(kTokens, num_tokens);
  return place;
}

QueueLoad QueueSpace::load() const {
  absl::MutexLock lock(&mutex_);
  return load_;
}

int64_t QueueSpace::num_tenants() const {
  absl::MutexLock lock(&mutex_);
  return num_waiting_tenants_;
}

int64_t QueueSpace::NumAhead(int32_t priority, absl::string_view tenant_name) const {
  absl::MutexLock lock(&mutex_);
  const auto tenant = tenants_.find(tenant_name);
  if (tenant == tenants_.end()) return 0;
  const auto& num_by_priority = tenant->second->num_by_priority;
  return std::accumulate(num_by_priority.begin() + kMaxPriority + priority, num_by_priority.end(), int64_t{0});
}

std::optional<std::string> QueueSpace::FurthestAboveShare(const CanGive& can_give) const {
  absl::MutexLock lock(&mutex_);
  if (num_waiting_tenants_ < 2) return std::nullopt;
  for (const Bound* bound : {&kRequests, &kSamples, &kTokens}) {
    const auto most = static_cast<double>(most_.*bound->field);
    if (load_.*bound->field <= most_.*bound->field) continue;
    const auto load_per_weight = [&](const Tenant& tenant) {
      return static_cast<double>(tenant.load.*bound->field) / tenant.weight;
    };
    const Tenant* furthest = nullptr;
    double most_per_weight = most / waiting_weights_;  // a share's
    for (const auto& [name, tenant] : tenants_) {
      if (load_per_weight(*tenant) <= most_per_weight || !can_give(name)) continue;
      furthest = tenant.get();
      most_per_weight = load_per_weight(*tenant);
    }
    if (furthest != nullptr) return furthest->name;
  }
  return std::nullopt;
}

QueueSpace::Tenant& QueueSpace::Hold(absl::string_view name) {
  std::unique_ptr<Tenant>& tenant = tenants_[name];
  if (tenant == nullptr) {
    tenant = std::make_unique<Tenant>();
    tenant->name = std::string(name);
    tenant->weight = shares_.weights.Of(name);
  }
  ++tenant->num_places;
  return *tenant;
}

void QueueSpace::LetGo(Tenant& tenant) {
  if (--tenant.num_places == 0) tenants_.erase(std::string(tenant.name));
}

int64_t QueueSpace::NumCounted(const Bound& bound, int64_t number) const {
  return &bound == &kTokens ? std::min(number, most_.num_tokens) : number;
}

absl::Status QueueSpace::Add(const Bound& bound, int64_t number, Tenant& tenant) {
  const int64_t before = load_.*bound.field, most = most_.*bound.field;
  const int64_t own_before = tenant.load.*bound.field;
  if (&bound == &kTokens && number > 0 && own_before > 0 &&
      own_before + number > shares_.max_queued_tokens.value_or(own_before + number)) {
    return Refuse({.whose = "the tenant's queue",
                   .bound = "max_tenant_queued_tokens",
                   .most = *shares_.max_queued_tokens,
                   .num_waiting = own_before,
                   .number = number},
                  "TENANT_QUEUE_FULL");
  }
  const int64_t counted = NumCounted(bound, number);
  const bool fits = before + counted <= most || before == 0 || counted == 0;
  if (!fits && !IsWithinShare(bound, counted, tenant)) {
    return Refuse({.whose = "the queue", .bound = bound.name, .most = most, .num_waiting = before, .number = number},
                  "QUEUE_FULL");
  }
  Change(bound, counted, tenant);
  return absl::OkStatus();
}

bool QueueSpace::IsWithinShare(const Bound& bound, int64_t number, const Tenant& tenant) const {
  const int64_t most = most_.*bound.field;
  const double weights = waiting_weights_ + (tenant.load.num_requests == 0 ? tenant.weight : 0);
  const double share = static_cast<double>(most) * tenant.weight / weights;
  return static_cast<double>(tenant.load.*bound.field + number) <= share &&
         load_.*bound.field + number <= kMostOverflow * most;
}

void QueueSpace::Change(const Bound& bound, int64_t number, Tenant& tenant) {
  const bool waited = tenant.load.num_requests > 0;
  load_.*bound.field += number;
  tenant.load.*bound.field += number;
  const bool waits = tenant.load.num_requests > 0;
  if (waits == waited) return;
  num_waiting_tenants_ += waits ? 1 : -1;
  waiting_weights_ = num_waiting_tenants_ == 0 ? 0 : waiting_weights_ + (waits ? tenant.weight : -tenant.weight);
}

QueuePlace::QueuePlace(QueuePlace&& other) noexcept { *this = std::move(other); }

QueuePlace& QueuePlace::operator=(QueuePlace&& other) noexcept {
  std::swap(space_, other.space_);
  std::swap(tenant_, other.tenant_);
  std::swap(is_counted_, other.is_counted_);
  std::swap(num_samples_, other.num_samples_);
  std::swap(num_tokens_, other.num_tokens_);
  std::swap(priority_, other.priority_);
  return *this;
}

QueuePlace::~QueuePlace() {
  if (space_ == nullptr) return;
  absl::MutexLock lock(&space_->mutex_);
  space_->Change(QueueSpace::kSamples, -num_samples_, *tenant_);
  Count(false);
  space_->LetGo(*tenant_);
}

void QueuePlace::Count(bool counts) {
  if (std::exchange(is_counted_, counts) == counts) return;
  const int64_t sign = counts ? 1 : -1;
  space_->Change(QueueSpace::kRequests, sign, *tenant_);
  space_->Change(QueueSpace::kTokens, sign * num_tokens_, *tenant_);
  CountPriority(static_cast<int32_t>(sign));
}

void QueuePlace::CountPriority(int32_t change) {
  if (priority_.has_value()) tenant_->num_by_priority[kMaxPriority + *priority_] += change;
}

absl::Status QueuePlace::Fill(const QueuedRequest& request) {
  FT_CHECK(space_ != nullptr && is_counted_ && !priority_.has_value());
  absl::MutexLock lock(&space_->mutex_);
  // The estimates end, and the tenant may be another one.
  space_->Change(QueueSpace::kSamples, -std::exchange(num_samples_, 0), *tenant_);
  Count(false);
  num_tokens_ = 0;
  space_->LetGo(*std::exchange(tenant_, &space_->Hold(request.tenant)));
  Count(true);
  FT_RETURN_IF_ERROR(space_->Add(QueueSpace::kSamples, request.num_samples, *tenant_));
  num_samples_ = request.num_samples;
  FT_RETURN_IF_ERROR(space_->Add(QueueSpace::kTokens, request.num_tokens, *tenant_));
  num_tokens_ = space_->NumCounted(QueueSpace::kTokens, request.num_tokens);
  priority_ = request.priority;
  CountPriority(1);
  return absl::OkStatus();
}

void QueuePlace::BeginSample() {
  FT_CHECK(num_samples_ > 0);
  absl::MutexLock lock(&space_->mutex_);
  space_->Change(QueueSpace::kSamples, -1, *tenant_);
  if (--num_samples_ == 0) Count(false);
}

void QueuePlace::ReturnSample() {
  absl::MutexLock lock(&space_->mutex_);
  Count(true);
  ++num_samples_;
  space_->Change(QueueSpace::kSamples, 1, *tenant_);
}

}  // namespace foretoken::verifier
