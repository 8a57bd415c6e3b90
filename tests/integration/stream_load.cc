// SPDX-License-Identifier: Apache-2.0
#include "tests/integration/stream_load.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace foretoken {

v1::GenerateRequest RepetitiveRequest(int index) {
  static constexpr const char* kNames[] = {"alpha", "beta", "gamma", "delta"};
  v1::GenerateRequest request;
  std::string text = "class Config:\n    def __init__(self):\n";
  for (const char* name : kNames) absl::StrAppend(&text, "        self.", name, " = None\n");
  for (const char* name : kNames) {
    absl::StrAppend(&text, "\n    def get_", name, "(self):\n        return self.", name, "\n");
  }
  absl::StrAppend(&text, "\n    def set_", index, "(self, value):\n");
  request.set_text(text);
  request.mutable_sampling()->set_temperature(index % 2 == 0 ? 0 : 0.8f);
  request.mutable_sampling()->set_seed(1000 + static_cast<uint64_t>(index));
  request.mutable_stopping()->set_max_tokens(kRequestTokens);
  request.mutable_stopping()->set_ignore_eos(true);
  return request;
}

StreamLoad::StreamLoad(client::GenerationClient& client, LoadOptions options)
    : client_(client), options_(std::move(options)) {
  for (int i = 0; i < options_.num_streams; ++i) threads_.emplace_back([this] { Stream(); });
}

void StreamLoad::Stream() {
  while (!is_enough_) {
    const int index = next_request_.fetch_add(1);
    if (index >= options_.num_requests) return;
    v1::GenerateRequest request = options_.make_request(index % options_.num_distinct);
    request.mutable_speculation()->set_mode(options_.mode);
    std::vector<uint32_t> tokens;
    std::vector<Gap> gaps;
    std::optional<absl::Time> last;
    const absl::Status status = client_.Generate(
        request,
        [&](const v1::GenerateResponse& response) {
          const absl::Time now = absl::Now();
          if (last.has_value()) gaps.push_back({.at = now, .length = now - *last});
          last = now;
          tokens.insert(tokens.end(), response.token_ids().begin(), response.token_ids().end());
          num_tokens_ += response.token_ids_size();
          num_accepted_ += std::count(response.speculated().begin(), response.speculated().end(), true);
          options_.on_response(response);
          return true;
        },
        &cancellation_);
    absl::MutexLock lock(&mutex_);
    if (!status.ok()) errors_.push_back(status.ToString());
    outputs_[index] = std::move(tokens);
    gaps_.insert(gaps_.end(), gaps.begin(), gaps.end());
    if (absl::IsUnavailable(status)) return;
  }
}

bool StreamLoad::AcceptsMore(int64_t num_tokens) const {
  return WaitUntil([this, enough = num_accepted_ + num_tokens] { return num_accepted_ >= enough; });
}

bool StreamLoad::Continues() const {
  return WaitUntil([this, enough = num_tokens_ + 20 * options_.num_streams] { return num_tokens_ >= enough; });
}

void StreamLoad::Finish() {
  is_enough_ = true;
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

void StreamLoad::Cancel() {
  is_enough_ = true;
  cancellation_.Cancel();
  Finish();
}

const std::map<int, std::vector<uint32_t>>& StreamLoad::Outputs() {
  Finish();
  return outputs_;
}

void StreamLoad::ExpectTheTokensOfNoSpeculation() {
  Finish();
  EXPECT_TRUE(errors_.empty()) << errors_.front();
  EXPECT_LT(next_request_, options_.num_requests) << "the streams ended before the test did";
  LoadOptions plain_options = options_;
  plain_options.mode = v1::SPECULATION_MODE_OFF;
  plain_options.num_requests = std::min(next_request_.load(), options_.num_distinct);
  StreamLoad plain(client_, plain_options);
  for (std::thread& thread : plain.threads_) thread.join();
  plain.threads_.clear();
  EXPECT_TRUE(plain.errors_.empty()) << plain.errors_.front();
  EXPECT_EQ(plain.num_accepted_, 0);
  EXPECT_EQ(plain.outputs_.size(), plain_options.num_requests);
  for (const auto& [index, tokens] : outputs_) {
    EXPECT_EQ(tokens, plain.outputs_[index % options_.num_distinct]) << "request " << index;
  }
}

GapSummary Summarise(const std::vector<StreamLoad::Gap>& gaps, absl::Time begin, absl::Time end) {
  GapSummary summary;
  absl::Duration sum;
  std::vector<absl::Duration> lengths;
  for (const StreamLoad::Gap& gap : gaps) {
    if (gap.at < begin || gap.at >= end) continue;
    sum += gap.length;
    summary.longest = std::max(summary.longest, gap.length);
    ++summary.num_gaps;
    lengths.push_back(gap.length);
  }
  if (lengths.empty()) return summary;
  summary.mean = sum / static_cast<int64_t>(lengths.size());
  const auto p99 = lengths.begin() + static_cast<ptrdiff_t>(lengths.size() * 99 / 100);
  std::ranges::nth_element(lengths, p99);
  summary.p99 = *p99;
  return summary;
}

}  // namespace foretoken
