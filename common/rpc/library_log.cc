// SPDX-License-Identifier: Apache-2.0
#include "common/rpc/library_log.h"

#include <cstdlib>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "common/base/error_text.h"
#include "common/base/steady_clock.h"
#include "common/telemetry/line_limit.h"
#include "google/protobuf/stubs/logging.h"
#include "grpc/support/log.h"
#include "spdlog/spdlog.h"

namespace foretoken::rpc {
namespace {

constexpr size_t kMaxLineBytes = 256;

// The lines of one library.
class LimitedLog {
 public:
  explicit LimitedLog(absl::string_view library) : library_(library) {}

  void Warn(absl::string_view message) {
    std::optional<std::string> line;
    {
      absl::MutexLock lock(&mutex_);
      line = limit_.Pass(Line(message), SteadyNow());
    }
    if (line.has_value()) spdlog::warn("{}", *line);
  }
  std::string Line(absl::string_view message) const {
    return absl::StrCat(library_, ": ", base::Quoted(message, kMaxLineBytes));
  }

 private:
  const absl::string_view library_;
  absl::Mutex mutex_;
  telemetry::LineLimit limit_;
};

void LogOfGrpc(gpr_log_func_args* args) {
  static LimitedLog log("gRPC");
  log.Warn(args->message);
}

void LogOfProtobuf(google::protobuf::LogLevel level, const char* /*file*/, int /*line*/, const std::string& message) {
  static LimitedLog log("protobuf");
  if (level == google::protobuf::LOGLEVEL_FATAL) {  // the process ends after this line
    spdlog::critical("{}", log.Line(message));
  } else {
    log.Warn(message);
  }
}

}  // namespace

void TakeLibraryLogs() {
  gpr_set_log_function(LogOfGrpc);
  google::protobuf::SetLogHandler(LogOfProtobuf);
}

void DropLibraryLogs() {
  if (std::getenv("GRPC_VERBOSITY") != nullptr) return;
  gpr_set_log_function([](gpr_log_func_args*) {});
  google::protobuf::SetLogHandler(nullptr);
}

}  // namespace foretoken::rpc
