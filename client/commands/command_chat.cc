// SPDX-License-Identifier: Apache-2.0
// foretoken chat: a conversation on the terminal. Answers go to standard output, everything else to standard error.
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/synchronization/mutex.h"
#include "client/chat_history.h"
#include "client/commands/commands.h"
#include "client/commands/connect_flags.h"
#include "client/commands/interrupt.h"
#include "client/commands/output_style.h"
#include "client/commands/request_flags.h"
#include "client/commands/result_file.h"
#include "client/comparison.h"
#include "client/generation_stats.h"
#include "client/terminal.h"
#include "client/text_attribution.h"
#include "client/timed_generation.h"
#include "common/base/mapped_file.h"
#include "common/base/status_macros.h"

ABSL_FLAG(std::string, system, "", "Text of the system message that begins the conversation");

namespace foretoken::client {
namespace {

using foretoken::v1::GenerateRequest;
using foretoken::v1::GenerateResponse;

constexpr char kHelp[] =
    "/system TEXT  set the system message; without TEXT there is none\n"
    "/compare      write the last answer again without speculation, and compare the tokens, and the speed after the\n"
    "              first token\n"
    "/save FILE    write the conversation into a file, as a JSON list of messages; outside a terminal, a new file\n"
    "/reset        forget the conversation; the system message stays\n"
    "/help         show these commands\n"
    "/quit         end; so does the end of the input\n"
    "Every other line is a message. // at the beginning of a line stands for one /. Ctrl-C stops an answer.\n";

// Ctrl-C stops the answer that is being written. Without one, it ends the process, as every other signal does. The
// server ends an answer whose connection is gone.
class AnswerInterrupt {
 public:
  // The cancellation of the next answer.
  std::shared_ptr<Cancellation> Begin() {
    absl::MutexLock lock(&mutex_);
    answer_ = std::make_shared<Cancellation>();
    return answer_;
  }
  void End() {
    absl::MutexLock lock(&mutex_);
    answer_.reset();
  }
  void OnSignal(int signal) {
    absl::MutexLock lock(&mutex_);
    if (signal != SIGINT || answer_ == nullptr || answer_->cancelled()) _exit(128 + signal);
    answer_->Cancel();
  }

 private:
  absl::Mutex mutex_;
  std::shared_ptr<Cancellation> answer_ ABSL_GUARDED_BY(mutex_);
};

// A line of a pipe may come from a stranger's text, so it overwrites no file.
absl::Status CreateNew(const std::string& path) {
  const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  if (file < 0) return absl::ErrnoToStatus(errno, absl::StrCat("/save: cannot create ", path));
  close(file);
  return absl::OkStatus();
}

// Returns the next line of the standard input; unset at its end.
absl::StatusOr<std::optional<std::string>> ReadLine() {
  std::string line;
  std::streambuf& input = *std::cin.rdbuf();
  for (int byte; (byte = input.sbumpc()) != '\n'; line.push_back(static_cast<char>(byte))) {
    if (byte == std::char_traits<char>::eof()) {
      // std::cin takes an error for the end.
      if (std::ferror(stdin) != 0) return absl::ErrnoToStatus(errno, "cannot read the standard input");
      if (line.empty()) return std::nullopt;
      break;
    }
    if (line.size() == base::kMaxReadBytes) {  // a device like /dev/zero has no end
      return absl::InvalidArgumentError(
          absl::StrCat("standard input: expected lines of at most ", base::kMaxReadBytes, " bytes, got a longer one"));
    }
  }
  return line;
}

// An answer, and the request that can make it again.
struct Answered {
  GenerateRequest request;
  TimedGeneration timed;
  GenerationStats stats;
};

// What speculation won after the first token. The time to the first token says nothing of speculation, because the
// answer without speculation finds its prompt in the prefix cache.
std::string SpeedVerdict(const GenerationStats& with, const GenerationStats& without) {
  const auto tokens_per_s = [](const GenerationStats& stats) {
    const double mean_ms = stats.inter_token_ms.has_value() ? stats.inter_token_ms->mean : 0;
    return mean_ms > 0 ? 1000 / mean_ms : 0;
  };
  const double with_rate = tokens_per_s(with), without_rate = tokens_per_s(without);
  if (with_rate == 0 || without_rate == 0) return "too few messages came to compare the speed";
  return absl::StrFormat(
      "after the first token %.1f tokens/s with speculation, %.1f tokens/s without: %.2f times as fast", with_rate,
      without_rate, with_rate / without_rate);
}

std::string TokensVerdict(const Answered& with, const Answered& without) {
  if (!KeepsTokens(with.request)) return "the tokens are not compared, because rejection sampling may change them";
  const bool is_equal =
      with.timed.generation.samples.at(0).token_ids == without.timed.generation.samples.at(0).token_ids;
  return is_equal ? "the tokens are equal" : "the tokens DIFFER";
}

class ChatCommand {
 public:
  ChatCommand(GenerationClient client, GenerateRequest request, OutputStyle style, AnswerInterrupt& interrupt)
      : client_(std::move(client)),
        request_(std::move(request)),
        style_(style),
        interrupt_(interrupt),
        history_(absl::GetFlag(FLAGS_system)) {}

  // Reads lines until the end of the input. Returns false if a line of a file or a pipe failed, or the reading did; the
  // error was printed.
  bool Run() {
    const bool is_terminal = isatty(STDIN_FILENO) == 1;
    bool has_failed = false;
    while (true) {
      if (is_terminal) std::cerr << "> " << std::flush;
      const absl::StatusOr<std::optional<std::string>> line = ReadLine();
      if (!line.ok()) {
        ExitCode(line.status());
        return false;
      }
      if (!line->has_value()) break;
      const absl::string_view text = absl::StripAsciiWhitespace(**line);
      if (text.empty()) continue;
      if (text == "/quit") break;
      const absl::Status status = text.front() == '/' && text.substr(0, 2) != "//" ? RunCommand(text) : Say(text);
      if (status.ok()) continue;
      ExitCode(status);  // prints it
      has_failed = true;
    }
    return is_terminal || !has_failed;
  }

 private:
  absl::Status RunCommand(absl::string_view text) {
    const std::pair<absl::string_view, absl::string_view> words = absl::StrSplit(text, absl::MaxSplits(' ', 1));
    const std::string argument(absl::StripAsciiWhitespace(words.second));
    if (words.first == "/system") {
      history_.set_system(argument);
    } else if (words.first == "/reset") {
      history_.Reset();
    } else if (words.first == "/save") {
      return Save(argument);
    } else if (words.first == "/compare") {
      return Compare();
    } else if (words.first == "/help") {
      std::cerr << kHelp;
    } else {
      return absl::InvalidArgumentError(absl::StrCat("no command ", words.first, "; /help shows the commands"));
    }
    return absl::OkStatus();
  }

  absl::Status Save(const std::string& path) const {
    if (path.empty()) return absl::InvalidArgumentError("/save: expected a file, got none");
    const bool must_be_new = isatty(STDIN_FILENO) != 1;
    if (must_be_new) FT_RETURN_IF_ERROR(CreateNew(path));
    if (const absl::Status written = WriteResultFile(path, history_.ToJsonText()); !written.ok()) {
      if (must_be_new) unlink(path.c_str());  // else it would be in the way of the next try
      return written;
    }
    std::cerr << "saved " << history_.num_turns() << " turns in " << path << std::endl;
    return absl::OkStatus();
  }

  // Asks the model and prints its answer while it comes. A stopped answer is kept as far as it came.
  absl::Status Say(absl::string_view text) {
    if (text.front() == '/') text.remove_prefix(1);
    GenerateRequest request = request_;
    *request.mutable_chat() = history_.Ask(text);
    Answered answered = Answer(std::move(request), /*prints=*/true);
    const TimedGeneration& timed = answered.timed;
    const bool was_stopped = absl::IsCancelled(timed.status);
    if (!timed.status.ok() && !was_stopped) return timed.status;
    std::string answer = timed.generation.samples.empty() ? "" : timed.generation.samples[0].text;
    history_.Add(std::string(text), std::move(answer));
    std::cerr << (was_stopped ? "stopped: " : "") << ToLine(answered.stats) << std::endl;
    last_.reset();
    if (!was_stopped) last_ = std::move(answered);
    return absl::OkStatus();
  }

  Answered Answer(GenerateRequest request, bool prints) {
    const std::shared_ptr<Cancellation> cancellation = interrupt_.Begin();
    TextAttribution attribution;
    const auto print = [&](const GenerateResponse& response) {
      if (!prints) return;
      if (response.has_prompt()) std::cout << Show({.text = response.prompt().text()}, style_);
      for (const TextRun& run : attribution.Append(response)) std::cout << Show(run, style_);
      std::cout << std::flush;
    };
    TimedGeneration timed = GenerateTimed(client_, request, print, cancellation.get());
    const GenerationStats stats = Summarise({&timed, 1}, timed.time_to_last_token());
    interrupt_.End();
    if (prints) std::cout << std::endl;
    return {.request = std::move(request), .timed = std::move(timed), .stats = stats};
  }

  // The last answer with the same seed and without speculation, and what speculation won.
  absl::Status Compare() {
    FT_RETURN_IF_ERROR(CheckSpeculates(request_));
    if (!last_) return absl::FailedPreconditionError("/compare: expected a complete answer before it, got none");
    GenerateRequest request = last_->request;
    const Sample& with = last_->timed.generation.samples.at(0);
    if (with.completion) request.mutable_sampling()->set_seed(with.completion->seed());
    request.mutable_speculation()->set_mode(foretoken::v1::SPECULATION_MODE_OFF);
    const Answered plain = Answer(std::move(request), /*prints=*/false);
    FT_RETURN_IF_ERROR(plain.timed.status);
    std::cerr << "without speculation: " << ToLine(plain.stats) << "\n"
              << SpeedVerdict(last_->stats, plain.stats) << "; " << TokensVerdict(*last_, plain) << std::endl;
    return absl::OkStatus();
  }

  GenerationClient client_;
  const GenerateRequest request_;
  const OutputStyle style_;
  AnswerInterrupt& interrupt_;
  ChatHistory history_;
  std::optional<Answered> last_;
};

absl::StatusOr<bool> Chat(const std::vector<std::string>& arguments) {
  if (!arguments.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("expected messages on standard input, got the argument ", arguments.front()));
  }
  FT_ASSIGN_OR_RETURN(const OutputStyle style, OutputStyleFromFlags());
  FT_ASSIGN_OR_RETURN(GenerateRequest request, RequestFromFlags("the messages"));
  if (request.sampling().n() > 1) return absl::InvalidArgumentError("--n: a conversation has one answer, expected 1");
  AnswerInterrupt interrupt;
  const InterruptWatcher watcher([&interrupt](int signal) { interrupt.OnSignal(signal); });
  FT_ASSIGN_OR_RETURN(GenerationClient client, ConnectFromFlags());
  FT_ASSIGN_OR_RETURN(const foretoken::v1::GetModelInfoResponse info, client.GetModelInfo());
  if (!info.has_chat_template()) {
    return absl::FailedPreconditionError(
        absl::StrCat("the checkpoint of ", info.model(), " has no chat template; use foretoken generate"));
  }
  if (isatty(STDIN_FILENO) == 1)
    std::cerr << EscapeControls(info.model()) << ". /help shows the commands." << std::endl;
  const auto command = std::make_unique<ChatCommand>(std::move(client), std::move(request), style, interrupt);
  return command->Run();
}

}  // namespace

int RunChat(const std::vector<std::string>& arguments) {
  const absl::StatusOr<bool> succeeded = Chat(arguments);
  if (!succeeded.ok()) return ExitCode(succeeded.status());
  return *succeeded ? 0 : 1;
}

}  // namespace foretoken::client
