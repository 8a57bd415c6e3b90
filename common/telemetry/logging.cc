// SPDX-License-Identifier: Apache-2.0
#include "common/telemetry/logging.h"

#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <ctime>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "absl/time/time.h"
#include "common/base/error_text.h"
#include "nlohmann/json.hpp"
#include "spdlog/pattern_formatter.h"
#include "spdlog/sinks/stdout_color_sinks.h"
#include "spdlog/spdlog.h"

namespace foretoken::telemetry {
namespace {

constexpr size_t kMaxFieldBytes = 256;     // of a text, which a client may have chosen
constexpr size_t kMaxMessageBytes = 8192;  // a file may have names of megabytes
constexpr char kLoggerName[] = "foretoken";
constexpr char kMembersFollow = '\x1e';  // the message is an event's members of a JSON object

std::atomic<bool> writes_json = false;

std::string JsonText(absl::string_view text) {
  return nlohmann::json(std::string(text)).dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
}

std::string Cut(absl::string_view message) {
  if (message.size() <= kMaxMessageBytes) return std::string(message);
  return absl::StrCat(message.substr(0, kMaxMessageBytes), "... (", message.size(), " bytes)");
}

// A message as members of a JSON object. Only LogEvent writes the mark, because no other text can begin with it: texts
// of others are quoted.
std::string Members(absl::string_view message) {
  if (!message.empty() && message.front() == kMembersFollow) return std::string(message.substr(1));
  return absl::StrCat("\"message\":", JsonText(Cut(message)));
}

class JsonFormatter : public spdlog::formatter {
 public:
  void format(const spdlog::details::log_msg& message, spdlog::memory_buf_t& line) override {
    const std::string time =
        absl::FormatTime("%Y-%m-%dT%H:%M:%E3SZ", absl::FromChrono(message.time), absl::UTCTimeZone());
    const spdlog::string_view_t level = spdlog::level::to_string_view(message.level);
    const std::string text = absl::StrCat(
        "{\"time\":\"", time, "\",\"level\":\"", absl::string_view(level.data(), level.size()),
        "\",\"thread\":", message.thread_id, ",", Members({message.payload.data(), message.payload.size()}), "}\n");
    line.append(text.data(), text.data() + text.size());
  }
  std::unique_ptr<spdlog::formatter> clone() const override { return std::make_unique<JsonFormatter>(); }
};

// A message on one line of text: a name in a file may hold what looks like another line of the log.
class OneLine : public spdlog::custom_flag_formatter {
 public:
  void format(const spdlog::details::log_msg& message, const std::tm&, spdlog::memory_buf_t& line) override {
    const std::string text =
        absl::StrReplaceAll(Cut({message.payload.data(), message.payload.size()}), {{"\n", "\\n"}, {"\r", "\\r"}});
    line.append(text.data(), text.data() + text.size());
  }
  std::unique_ptr<spdlog::custom_flag_formatter> clone() const override { return std::make_unique<OneLine>(); }
};

std::string Shown(const std::string& text, bool in_json) {
  if (!in_json) return base::Quoted(text, kMaxFieldBytes);
  return JsonText(absl::string_view(text).substr(0, kMaxFieldBytes));
}
std::string Shown(int64_t number, bool) { return absl::StrCat(number); }
std::string Shown(double number, bool) { return absl::StrFormat("%.3f", number); }

// The thread may hold a lock of the logger, and nothing can be allocated: so the line goes to standard error directly.
[[noreturn]] void EndWithoutMemory() {
  timespec now = {};
  clock_gettime(CLOCK_REALTIME, &now);
  tm utc = {};
  gmtime_r(&now.tv_sec, &utc);
  char time[32] = {};
  strftime(time, sizeof(time), "%Y-%m-%dT%H:%M:%S", &utc);
  constexpr char kText[] = "no memory is left for an allocation: the process ends";
  char line[256] = {};
  const int num_bytes = std::snprintf(
      line, sizeof(line),
      writes_json ? "{\"time\":\"%s.%03ldZ\",\"level\":\"critical\",\"message\":\"%s\"}\n" : "%s.%03ldZ critical %s\n",
      time, now.tv_nsec / 1'000'000, kText);
  [[maybe_unused]] const ssize_t num_written = write(STDERR_FILENO, line, static_cast<size_t>(num_bytes));
  _exit(1);
}

}  // namespace

absl::Status InitLogging(absl::string_view level, absl::string_view format) {
  const auto parsed = spdlog::level::from_str(std::string(level));
  if (parsed == spdlog::level::off && level != "off") {
    return absl::InvalidArgumentError(
        absl::StrCat("log_level: expected trace, debug, info, warning, error or off, got '", level, "'"));
  }
  if (format != "text" && format != "json") {
    return absl::InvalidArgumentError(absl::StrCat("log_format: expected text or json, got '", format, "'"));
  }
  writes_json = format == "json";
  auto logger = std::make_shared<spdlog::logger>(kLoggerName, std::make_shared<spdlog::sinks::stderr_color_sink_mt>());
  if (writes_json) {
    logger->set_formatter(std::make_unique<JsonFormatter>());
  } else {
    auto formatter = std::make_unique<spdlog::pattern_formatter>(spdlog::pattern_time_type::utc);
    formatter->add_flag<OneLine>('*').set_pattern("%Y-%m-%dT%H:%M:%S.%eZ %^%l%$ %t %*");
    logger->set_formatter(std::move(formatter));
  }
  logger->set_level(parsed);
  logger->flush_on(spdlog::level::info);
  spdlog::set_default_logger(std::move(logger));
  return absl::OkStatus();
}

void ReportLastError(absl::string_view program, const absl::Status& error) {
  const std::string line = absl::StrCat(program, ": ", error.message());
  if (spdlog::default_logger()->name() == kLoggerName && spdlog::should_log(spdlog::level::critical)) {
    spdlog::critical("{}", line);
  } else {
    std::fprintf(stderr, "%s\n", line.c_str());
  }
}

void EndIfMemoryRunsOut() { std::set_new_handler(EndWithoutMemory); }

void LogEvent(spdlog::level::level_enum level, absl::string_view message, std::initializer_list<LogField> fields) {
  if (!spdlog::should_log(level)) return;
  const bool in_json = writes_json;
  std::string line =
      in_json ? absl::StrCat(std::string(1, kMembersFollow), Members(message)) : absl::StrCat(message, ":");
  for (const LogField& field : fields) {
    const std::string value = std::visit([in_json](const auto& shown) { return Shown(shown, in_json); }, field.value);
    absl::StrAppend(&line, in_json ? ",\"" : " ", field.name, in_json ? "\":" : "=", value);
  }
  spdlog::log(level, "{}", line);
}

}  // namespace foretoken::telemetry
