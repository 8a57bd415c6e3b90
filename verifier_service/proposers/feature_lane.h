// SPDX-License-Identifier: Apache-2.0
// The features that one replica's sessions have received, and the features that wait to be sent to it. Bookkeeping
// only, like SessionBook, which owns a lane for each replica that needs features.
//
// The replica grants credits, in bytes. What waits here is paid: it takes at most the credits that the replica granted.
// What waits and the credit that is left are at most rpc::kMaxFeatureCredit together, whatever the replica grants.
// A session receives the features of its positions in order. Sessions that lack few features come first, so that a long
// context does not delay the others.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "foretoken/v1/proposal.pb.h"
#include "verifier_service/proposers/proposer_client.h"

namespace foretoken::verifier {

class FeatureLane {
 public:
  explicit FeatureLane(FeatureSource source);

  const FeatureSource& source() const { return source_; }
  // The bytes of one position.
  size_t position_bytes() const { return position_bytes_; }
  // Credit beyond the bound is lost.
  void AddCredit(uint64_t num_bytes);

  // Positions of a session whose features are still to be had.
  struct Need {
    uint64_t session_id = 0;
    uint64_t begin = 0, end = 0;
  };
  // What a session with this many positions lacks; unset: nothing.
  std::optional<Need> NeedOf(uint64_t session_id, uint64_t num_positions) const;
  // The part of the needs that the replica's credits pay for.
  std::vector<Need> Affordable(std::vector<Need> needs) const;

  // Takes features that a need asked for. Features before `begin` do not exist. Ignored beyond the credits.
  void Give(uint64_t session_id, uint64_t begin, std::vector<uint16_t> values);
  void Forget(uint64_t session_id);

  // Adds waiting chunks to the request, at most 128 KiB, for positions below what the session has been told.
  void Write(const std::function<uint64_t(uint64_t session_id)>& num_told, v1::ProposeRequest& request);

  // The memory of the features. A session without waiting features takes none.
  size_t num_bytes() const;

 private:
  struct Session {
    uint64_t next = 0;             // the first position whose feature has not been given
    uint64_t begin = 0;            // the position of the first waiting value
    std::vector<uint16_t> values;  // written values, then those that wait
    size_t num_written = 0;

    size_t num_waiting_bytes() const { return (values.size() - num_written) * sizeof(uint16_t); }
  };

  void WriteChunk(uint64_t session_id, Session& session, uint64_t num_positions, v1::ProposeRequest& request);

  const FeatureSource source_;
  const size_t position_bytes_;
  uint64_t credit_ = 0;             // bytes that may still be given
  uint64_t num_waiting_bytes_ = 0;  // of all sessions
  absl::flat_hash_map<uint64_t, Session> sessions_;
  std::deque<uint64_t> waiting_;  // sessions with waiting values, the next to write first
};

}  // namespace foretoken::verifier
