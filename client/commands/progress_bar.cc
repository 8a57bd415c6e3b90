// SPDX-License-Identifier: Apache-2.0
#include "client/commands/progress_bar.h"

#include <unistd.h>

#include <iostream>

#include "absl/strings/str_cat.h"

namespace foretoken::client {

ProgressBar::ProgressBar(int num_total) : num_total_(num_total), is_shown_(isatty(STDERR_FILENO) == 1) {}

ProgressBar::~ProgressBar() {
  if (is_shown_) std::cerr << "\r\x1b[K" << std::flush;
}

void ProgressBar::Advance(uint64_t num_tokens) {
  ++num_done_;
  num_tokens_ += num_tokens;
  if (is_shown_) std::cerr << "\r\x1b[K" << ProgressLine(num_done_, num_total_, num_tokens_) << std::flush;
}

std::string ProgressLine(int num_done, int num_total, uint64_t num_tokens) {
  constexpr int kWidth = 40;
  const int filled = kWidth * num_done / num_total;
  return absl::StrCat("[", std::string(filled, '#'), std::string(kWidth - filled, '-'), "] ", num_done, "/", num_total,
                      " requests, ", num_tokens, " tokens");
}

}  // namespace foretoken::client
