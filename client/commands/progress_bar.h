// SPDX-License-Identifier: Apache-2.0
// A progress bar on standard error. It prints nothing if standard error is no terminal. Threads: one at a time.
#pragma once

#include <cstdint>
#include <string>

namespace foretoken::client {

class ProgressBar {
 public:
  explicit ProgressBar(int num_total);
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;
  // Counts one finished request with its tokens.
  void Advance(uint64_t num_tokens);

 private:
  const int num_total_;
  const bool is_shown_;
  int num_done_ = 0;
  uint64_t num_tokens_ = 0;
};

// "[#####-----] 5/10 requests, 240 tokens"
std::string ProgressLine(int num_done, int num_total, uint64_t num_tokens);

}  // namespace foretoken::client
