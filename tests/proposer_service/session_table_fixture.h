// SPDX-License-Identifier: Apache-2.0
// Streams of sessions without gRPC.
//
//   TEST_F(SessionTableTest, ...) {
//     Stream stream(*this);
//     stream.Open(7, {1, 2, 3, 1}, 2);
//     EXPECT_THAT(stream.Exchange().trees(0).token_ids(), ElementsAre(2, 3));
#pragma once

#include <memory>
#include <vector>

#include "gtest/gtest.h"
#include "proposer_service/ngram/ngram.h"
#include "proposer_service/session_table.h"

namespace foretoken::proposer {

class SessionTableTest : public ::testing::Test {
 protected:
  // A table with its own requests and answers.
  struct Stream {
    explicit Stream(SessionTableTest& test)
        : Stream({.proposer = test.proposer_, .room = test.room_, .metrics = test.metrics_}) {}
    explicit Stream(const SessionTable::Environment& environment) : table(environment) {}

    v1::OpenSession& Open(uint64_t session_id, const std::vector<uint32_t>& token_ids, uint32_t node_budget) {
      v1::OpenSession& open = *request.add_opens();
      open.set_session_id(session_id);
      open.mutable_token_ids()->Add(token_ids.begin(), token_ids.end());
      open.set_node_budget(node_budget);
      return open;
    }
    v1::AdvanceSession& Advance(uint64_t session_id, uint64_t base_position, const std::vector<uint32_t>& token_ids,
                                uint32_t node_budget) {
      v1::AdvanceSession& advance = *request.add_advances();
      advance.set_session_id(session_id);
      advance.set_base_position(base_position);
      advance.mutable_token_ids()->Add(token_ids.begin(), token_ids.end());
      advance.set_node_budget(node_budget);
      return advance;
    }
    void Close(uint64_t session_id) { request.add_closes()->set_session_id(session_id); }
    void Apply() {
      EXPECT_TRUE(table.Apply(request).ok());
      request.Clear();
    }
    const v1::ProposeResponse& Exchange() {
      Apply();
      table.TakeResponse(response);
      return response;
    }

    v1::ProposeRequest request;
    v1::ProposeResponse response;
    SessionTable table;
  };

  telemetry::Metrics registry_;
  ProposerMetrics metrics_{registry_, {}};
  const SessionLimits limits_ = {.max_sessions = 3,
                                 .max_total_tokens = 250,
                                 .max_stream_share = 1,
                                 .max_context_tokens = 100,
                                 .max_tree_nodes = 10};
  SessionRoom room_{limits_, metrics_.room()};
  NgramProposer proposer_{{}};
};

// Records the rules of its sessions.
class RuleRecordingProposer : public NgramProposer {
 public:
  RuleRecordingProposer() : NgramProposer({}) {}
  std::unique_ptr<Session> Open(const SessionIntroduction& introduction) override {
    rules.push_back(introduction.rule);
    return NgramProposer::Open(introduction);
  }
  std::vector<kernels::VerificationRule> rules;
};

}  // namespace foretoken::proposer
