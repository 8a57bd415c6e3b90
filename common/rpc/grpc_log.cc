// SPDX-License-Identifier: Apache-2.0
#include "common/rpc/grpc_log.h"

#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "common/base/error_text.h"
#include "common/base/steady_clock.h"
#include "common/telemetry/line_limit.h"
#include "grpc/support/log.h"
#include "spdlog/spdlog.h"

namespace foretoken::rpc {
namespace {

constexpr size_t kMaxLineBytes = 256;

void Log(gpr_log_func_args* args) {
  static absl::Mutex mutex;
  static telemetry::LineLimit limit;
  std::optional<std::string> line;
  {
    absl::MutexLock lock(&mutex);
    line = limit.Pass(absl::StrCat("gRPC: ", base::Quoted(args->message, kMaxLineBytes)), SteadyNow());
  }
  if (line.has_value()) spdlog::warn("{}", *line);
}

}  // namespace

void TakeGrpcLog() { gpr_set_log_function(Log); }

}  // namespace foretoken::rpc
