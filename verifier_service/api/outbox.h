// SPDX-License-Identifier: Apache-2.0
// What one request still has to tell its client. A client that reads slowly gets fewer, larger messages: news is merged
// into what waits. So an outbox never holds more than the output itself, and nobody waits for anybody. Reports of steps
// can be larger than the output: of those the newest kMaxReportBytes a sample wait, and the first of them says how many
// were lost before it.
//
// A message has at most kMaxDeltaBytes of text, tokens and log-probabilities, at most kMaxReportBytes of reports, and a
// completion of a few KiB: less than half of the 4 MiB that every gRPC client takes.
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
#include "verifier_service/engine/request.h"

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
  static constexpr size_t kMaxDeltaBytes = size_t{1} << 20;
  static constexpr size_t kMaxReportBytes = size_t{512} << 10;

  explicit Outbox(OutboxOptions options);

  // After an error has been added, or every sample's completion, more is ignored.
  void Add(SampleOutput output);

  // Whether a sample has a token, or has ended.
  bool has_output() const { return has_output_; }

  // About how many bytes wait to be taken, as sent.
  size_t num_bytes() const { return num_bytes_; }

  // The next message. The prompt goes first, then samples in turn.
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

  // The part of the prompt that waits; its texts and tokens are cut into messages when they are taken.
  struct WaitingPrompt {
    int32_t sample_index = 0;
    PromptEcho prompt;
    size_t num_tokens_taken = 0;
    size_t num_text_bytes_taken = 0;
    size_t num_bytes = 0;  // of all of it
  };

  v1::GenerateResponse NewMessage(int32_t sample_index) const;
  Pending& PendingWithRoom(int32_t sample_index, size_t num_bytes);
  void AddDelta(const SampleOutput& output);
  void AddReport(const StepReport& report, WaitingReports& waiting);
  void TakeReports(WaitingReports& waiting, v1::GenerateResponse& message);
  void AddPrompt(int32_t sample_index, PromptEcho prompt);
  v1::GenerateResponse TakePrompt();
  void AddCompletion(const SampleCompletion& completion, Pending& pending);

  OutboxOptions options_;
  std::optional<WaitingPrompt> prompt_;
  std::vector<std::deque<Pending>> pending_;  // [num_samples]
  std::vector<size_t> num_text_bytes_;        // [num_samples], added until now
  std::vector<WaitingReports> reports_;       // [num_samples]
  int32_t next_sample_ = 0;                   // whose turn it is
  int32_t num_completed_ = 0;
  bool has_output_ = false;
  size_t num_bytes_ = 0;  // of all that waits
  absl::Status error_;
};

}  // namespace foretoken::verifier
