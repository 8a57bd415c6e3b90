// SPDX-License-Identifier: Apache-2.0
#include "common/rpc/connection_ages.h"

#include <algorithm>

namespace foretoken::rpc {
namespace {

// gRPC's choice is within a tenth of the limit. The first call comes after the connection, so some more is subtracted.
constexpr double kLeastShare = 0.85, kMostShare = 1.1;
constexpr size_t kMinSweepSize = 64;
// A stranger can make connections without end, each with a refused call.
constexpr size_t kMaxSwept = 32768;

}  // namespace

ConnectionAges::ConnectionAges(std::optional<absl::Duration> max_age) : max_age_(max_age), sweep_size_(kMinSweepSize) {}

bool ConnectionAges::IsOver(const Connection& connection, Clock::time_point now) const {
  return connection.num_calls == 0 && absl::FromChrono(now - connection.began) > *max_age_ * kMostShare;
}

void ConnectionAges::BeginCall(const std::string& peer, Clock::time_point now) {
  if (!max_age_.has_value()) return;
  const absl::MutexLock lock(&mutex_);
  if (connections_.size() >= sweep_size_) {
    absl::erase_if(connections_, [&](const auto& entry) { return IsOver(entry.second, now); });
    if (connections_.size() > kMaxSwept) {
      absl::erase_if(connections_, [](const auto& entry) { return entry.second.num_calls == 0; });
    }
    sweep_size_ = std::max(kMinSweepSize, 2 * connections_.size());
  }
  Connection& connection = connections_.try_emplace(peer, Connection{.began = now}).first->second;
  if (IsOver(connection, now)) connection.began = now;  // another connection from the same port
  ++connection.num_calls;
}

bool ConnectionAges::EndCall(const std::string& peer, Clock::time_point now) {
  if (!max_age_.has_value()) return false;
  const absl::MutexLock lock(&mutex_);
  const auto found = connections_.find(peer);
  if (found == connections_.end() || --found->second.num_calls > 0) return false;
  return absl::FromChrono(now - found->second.began) >= *max_age_ * kLeastShare;
}

size_t ConnectionAges::num_connections() const {
  const absl::MutexLock lock(&mutex_);
  return connections_.size();
}

}  // namespace foretoken::rpc
