// SPDX-License-Identifier: Apache-2.0
#include "verifier_service/proposers/feature_lane.h"

#include <algorithm>
#include <utility>

#include "common/rpc/proposal_protocol.h"

namespace foretoken::verifier {
namespace {

// Of one message's features. The tokens that come next wait while the message is written.
constexpr size_t kMaxMessageBytes = size_t{128} << 10;
constexpr size_t kMaxWaitingBytes = size_t{8} << 20;  // of one session

}  // namespace

FeatureLane::FeatureLane(FeatureSource source)
    : source_(std::move(source)), position_bytes_(static_cast<size_t>(source_->width()) * sizeof(uint16_t)) {}

void FeatureLane::AddCredit(uint64_t num_bytes) {
  credit_ += std::min(num_bytes, rpc::kMaxFeatureCredit - credit_ - num_waiting_bytes_);
}

std::optional<FeatureLane::Need> FeatureLane::NeedOf(uint64_t session_id, uint64_t num_positions) const {
  const auto it = sessions_.find(session_id);
  Need need = {.session_id = session_id, .begin = it == sessions_.end() ? 0 : it->second.next, .end = num_positions};
  const size_t num_waiting_bytes = it == sessions_.end() ? 0 : it->second.num_waiting_bytes();
  const uint64_t num_free = (kMaxWaitingBytes - std::min(num_waiting_bytes, kMaxWaitingBytes)) / position_bytes_;
  // A position may be wider than the bound.
  need.end = std::min(need.end, need.begin + std::max<uint64_t>(num_free, num_waiting_bytes == 0 ? 1 : 0));
  if (need.begin >= need.end) return std::nullopt;
  return need;
}

std::vector<FeatureLane::Need> FeatureLane::Affordable(std::vector<Need> needs) const {
  std::ranges::stable_sort(needs, {}, [](const Need& need) { return need.end - need.begin; });
  uint64_t num_left = credit_ / position_bytes_;
  for (Need& need : needs) {
    need.end = std::min(need.end, need.begin + num_left);
    num_left -= need.end - need.begin;
  }
  std::erase_if(needs, [](const Need& need) { return need.begin == need.end; });
  return needs;
}

void FeatureLane::Give(uint64_t session_id, uint64_t begin, std::vector<uint16_t> values) {
  const uint64_t num_bytes = values.size() * sizeof(uint16_t);
  if (num_bytes == 0 || num_bytes > credit_) return;
  Session& session = sessions_[session_id];
  const bool has_waiting = session.num_waiting_bytes() > 0;
  if (begin != session.next && has_waiting) return;  // what waits is sent first
  credit_ -= num_bytes;
  num_waiting_bytes_ += num_bytes;
  if (!has_waiting) {
    session.begin = begin;
    waiting_.push_back(session_id);
  }
  session.values.insert(session.values.end(), values.begin(), values.end());
  session.next = begin + num_bytes / position_bytes_;
}

void FeatureLane::Forget(uint64_t session_id) {
  const auto it = sessions_.find(session_id);
  if (it == sessions_.end()) return;
  const size_t num_unseen = it->second.num_waiting_bytes();  // the replica never sees them
  credit_ += num_unseen;
  num_waiting_bytes_ -= num_unseen;
  if (num_unseen > 0) std::erase(waiting_, session_id);
  sessions_.erase(it);
}

void FeatureLane::Write(const std::function<uint64_t(uint64_t session_id)>& num_told, v1::ProposeRequest& request) {
  const uint64_t max_piece = std::max<uint64_t>(rpc::kMaxFeatureChunkBytes / position_bytes_, 1);
  size_t num_bytes_left = std::max(kMaxMessageBytes, position_bytes_);
  std::deque<uint64_t> untold;  // sessions whose waiting positions they have not been told of
  while (!waiting_.empty()) {
    const uint64_t session_id = waiting_.front();
    Session& session = sessions_.at(session_id);
    const uint64_t num_waiting = session.num_waiting_bytes() / position_bytes_;
    const uint64_t told = num_told(session_id);
    const uint64_t num_sendable = std::min(num_waiting, told - std::min(told, session.begin));
    const uint64_t num_now = std::min(num_sendable, max_piece);
    if (num_now * position_bytes_ > num_bytes_left) break;
    waiting_.pop_front();
    if (num_now > 0) WriteChunk(session_id, session, num_now, request);
    num_bytes_left -= num_now * position_bytes_;
    if (session.num_waiting_bytes() == 0) continue;
    // The rest of what may be sent waits behind the other sessions.
    (num_now < num_sendable ? waiting_ : untold).push_back(session_id);
  }
  waiting_.insert(waiting_.end(), untold.begin(), untold.end());
}

void FeatureLane::WriteChunk(uint64_t session_id, Session& session, uint64_t num_positions,
                             v1::ProposeRequest& request) {
  const size_t num_bytes = num_positions * position_bytes_;
  v1::FeatureChunk& chunk = *request.add_features();
  chunk.set_session_id(session_id);
  chunk.set_first_position(session.begin);
  chunk.set_dtype(std::string(rpc::kFeatureDtype));
  chunk.set_values(session.values.data() + session.num_written, num_bytes);
  num_waiting_bytes_ -= num_bytes;
  session.num_written += num_bytes / sizeof(uint16_t);
  session.begin += num_positions;
  if (2 * session.num_written < session.values.size()) return;  // so each value moves at most once, in the mean
  session.values.erase(session.values.begin(), session.values.begin() + static_cast<ptrdiff_t>(session.num_written));
  session.num_written = 0;
  if (session.values.capacity() > 4 * session.values.size()) session.values.shrink_to_fit();
}

size_t FeatureLane::num_bytes() const {
  size_t num_bytes = 0;
  for (const auto& [id, session] : sessions_) num_bytes += session.values.capacity() * sizeof(uint16_t);
  return num_bytes;
}

}  // namespace foretoken::verifier
