// SPDX-License-Identifier: Apache-2.0
// What one request still has to tell its client. A client that reads slowly gets fewer, larger messages: at most one
// per sample waits, and news is merged into it. So an outbox never holds more than the output itself, and nobody waits
// for anybody. Reports of steps can be larger than the output: of those the newest kMaxReportBytes a sample wait, and
// the first of them says how many were lost before it.
//
//   outbox.Add(std::move(output));                        // whenever the engine has news
//   while (std::optional<v1::GenerateResponse> message = outbox.Take()) Write(*message);
//   if (const std::optional<absl::Status> status = outbox.Result()) Finish(*status);
//
// Threads: one at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "foretoken/v1/generation.pb.h"
#include "verifier_service/request.h"

namespace foretoken::verifier {

struct OutboxOptions {
  std::string request_id;
  int32_t num_samples = 1;
  uint64_t seed = 0;
  std::string numerics_fingerprint;
  std::string prompt_text;  // for the message with the prompt, where echo asked for it
};

class Outbox {
 public:
  static constexpr size_t kMaxReportBytes = size_t{512} << 10;

  explicit Outbox(OutboxOptions options);

  // After an error has been added, or every sample's completion, more is ignored.
  void Add(SampleOutput output);

  // The next message. Prompts go first, then samples in turn.
  std::optional<v1::GenerateResponse> Take();

  // How the request ended, once that is known and everything is taken: OK after the completion of every sample.
  std::optional<absl::Status> Result() const;

 private:
  struct Pending {
    v1::GenerateResponse message;
    size_t num_bytes = 0;  // about
  };

  struct WaitingReport {
    v1::StepReport report;
    size_t num_bytes = 0;
  };
  struct WaitingReports {
    std::deque<WaitingReport> reports;
    size_t num_bytes = 0;
    uint32_t num_lost = 0;  // before the first of these
  };

  v1::GenerateResponse NewMessage(int32_t sample_index) const;
  Pending& PendingWithRoom(const SampleOutput& output);
  static void MergeDelta(const SampleOutput& output, Pending& pending);
  void AddReport(const StepReport& report, WaitingReports& waiting);
  static void TakeReports(WaitingReports& waiting, v1::GenerateResponse& message);
  void AddPrompt(const SampleOutput& output);
  void AddCompletion(const SampleCompletion& completion, v1::GenerateResponse& message);

  OutboxOptions options_;
  std::deque<v1::GenerateResponse> prompts_;
  std::vector<std::deque<Pending>> pending_;  // [num_samples]
  std::vector<WaitingReports> reports_;       // [num_samples]
  int32_t next_sample_ = 0;                   // whose turn it is
  int32_t num_completed_ = 0;
  absl::Status error_;
};

}  // namespace foretoken::verifier
