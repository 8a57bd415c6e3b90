// SPDX-License-Identifier: Apache-2.0
// Captures the log lines of this process, which then do not go to standard error.
//
//   CapturedLog log;
//   ...
//   EXPECT_THAT(log.Lines(), ElementsAre("warning something happened"));
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "spdlog/sinks/base_sink.h"
#include "spdlog/spdlog.h"

namespace foretoken::testing {

class CapturedLog {
 public:
  CapturedLog() : sink_(std::make_shared<Sink>()), before_(spdlog::default_logger()) {
    auto logger = std::make_shared<spdlog::logger>("captured", sink_);
    logger->set_pattern("%l %v");
    spdlog::set_default_logger(std::move(logger));
  }
  ~CapturedLog() {
    Release();
    spdlog::set_default_logger(before_);
  }

  // Makes every log call wait until Release.
  void Block() {
    absl::MutexLock lock(&sink_->state);
    sink_->is_blocked = true;
  }
  void Release() {
    absl::MutexLock lock(&sink_->state);
    sink_->is_blocked = false;
  }
  bool HasWriters() const {
    absl::MutexLock lock(&sink_->state);
    return sink_->num_waiting > 0;
  }

  // The lines as they would appear on standard error. A line end inside a message makes two lines.
  std::vector<std::string> Lines() const {
    absl::MutexLock lock(&sink_->state);
    return absl::StrSplit(sink_->text, '\n', absl::SkipEmpty());
  }

 private:
  struct Sink : spdlog::sinks::base_sink<std::mutex> {
    void sink_it_(const spdlog::details::log_msg& message) override {
      spdlog::memory_buf_t line;
      formatter_->format(message, line);
      absl::MutexLock lock(&state);
      ++num_waiting;
      state.Await(absl::Condition(
          +[](bool* is_blocked) { return !*is_blocked; }, &is_blocked));
      --num_waiting;
      text.append(line.data(), line.size());
    }
    void flush_() override {}

    absl::Mutex state;
    bool is_blocked = false;
    int num_waiting = 0;
    std::string text;
  };

  std::shared_ptr<Sink> sink_;
  std::shared_ptr<spdlog::logger> before_;
};

}  // namespace foretoken::testing
