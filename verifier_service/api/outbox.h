// SPDX-License-Identifier: Apache-2.0
// The unsent output of one request. New output is merged into the waiting messages, so a client that reads slowly gets
// fewer, larger messages. An outbox never holds more than the output itself, and Add never waits. Step reports can be
// larger than the output: the outbox keeps the newest kMaxReportBytes of a sample's reports, and the first kept report
// says how many were dropped before it.
//
// A message has at most kMaxDeltaBytes of text, tokens and log-probabilities, at most kMaxReportBytes of reports, and a
// completion of a few KiB. That is less than half of the 4 MiB that every gRPC client accepts.
//
//   outbox.Add(std::move(output));                        // for every output of the engine
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
#include "verifier_service/request/request.h"

namespace foretoken::verifier {

struct OutboxOptions {
  std::string request_id;
  int32_t num_samples = 1;
  uint64_t seed = 0;
  std::string numerics_fingerprint;
  std::string prompt_text;  // for the message with the prompt, if the request set echo
};

class Outbox {
 public:
  static constexpr size_t kMaxDeltaBytes = size_t{1} << 20;
  static constexpr size_t kMaxReportBytes = size_t{512} << 10;

  explicit Outbox(OutboxOptions options);

  // Ignores outputs that follow an error or the last completion.
  void Add(SampleOutput output);

  // True once a sample has a token or has ended.
  bool has_output() const { return has_output_; }

  // Approximate size of the waiting messages on the wire.
  size_t num_bytes() const { return num_bytes_; }

  // Removes and returns the next message. The prompt comes first, then the samples take turns.
  std::optional<v1::GenerateResponse> Take();

  // The request's status, once it is known and every message is taken: OK after the completion of every sample.
  std::optional<absl::Status> Result() const;

 private:
  struct Pending {
    v1::GenerateResponse message;
    size_t num_bytes = 0;  // approximate
  };

  struct WaitingReport {
    v1::StepReport report;
    size_t num_bytes = 0;
  };
  struct WaitingReports {
    std::deque<WaitingReport> reports;
    size_t num_bytes = 0;
    uint32_t num_lost = 0;  // dropped before the first report here
  };

  // The unsent part of the prompt. Take cuts its texts and tokens into messages.
  struct WaitingPrompt {
    int32_t sample_index = 0;
    PromptEcho prompt;
    size_t num_tokens_taken = 0;
    size_t num_text_bytes_taken = 0;
    size_t num_bytes = 0;  // of the whole prompt
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
  std::vector<size_t> num_text_bytes_;        // [num_samples], all text added so far
  std::vector<WaitingReports> reports_;       // [num_samples]
  int32_t next_sample_ = 0;                   // the sample whose turn it is
  int32_t num_completed_ = 0;
  bool has_output_ = false;
  size_t num_bytes_ = 0;  // of all waiting messages
  absl::Status error_;
};

}  // namespace foretoken::verifier
