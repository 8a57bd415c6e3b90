// SPDX-License-Identifier: Apache-2.0
#include "verifier_service/grammar/compile_process.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/base/error_text.h"
#include "common/base/status_macros.h"
#include "common/base/steady_clock.h"
#include "verifier_service/grammar/frames.h"

extern char** environ;

namespace foretoken::verifier {
namespace {

enum FrameKind : uint32_t {
  kTokens = 1,     // to the process: GrammarTokens
  kLimits = 2,     // to the process: CompileLimits
  kText = 100,     // to the process: plus the GrammarKind
  kGrammar = 3,    // from it: a serialized grammar
  kRefusal = 4,    // from it: XGrammar's reason
  kTooCostly = 5,  // from it: which limit
  kFault = 6       // from it: why the machine lets it make no child
};

// A processor may be shared, so a text gets more time on the clock than of a processor.
constexpr int kClockPerProcessorTime = 10;
constexpr absl::Duration kStartTime = absl::Seconds(30);

template <typename T>
void AppendNumber(T number, std::string& bytes) {
  bytes.append(reinterpret_cast<const char*>(&number), sizeof(number));
}

template <typename T>
T TakeNumber(absl::string_view& bytes) {
  T number = {};
  if (bytes.size() < sizeof(number)) return number;
  std::memcpy(&number, bytes.data(), sizeof(number));
  bytes.remove_prefix(sizeof(number));
  return number;
}

std::string Pack(const GrammarTokens& tokens) {
  std::string bytes;
  AppendNumber<uint64_t>(tokens.end_token_ids.size(), bytes);
  for (const int32_t id : tokens.end_token_ids) AppendNumber(id, bytes);
  for (const std::string& token : tokens.bytes) {
    AppendNumber(static_cast<uint32_t>(token.size()), bytes);
    bytes += token;
  }
  return bytes;
}

GrammarTokens UnpackTokens(absl::string_view bytes) {
  GrammarTokens tokens;
  for (auto num_left = TakeNumber<uint64_t>(bytes); num_left > 0 && !bytes.empty(); --num_left) {
    tokens.end_token_ids.push_back(TakeNumber<int32_t>(bytes));
  }
  while (!bytes.empty()) {
    const auto num_bytes = std::min<size_t>(TakeNumber<uint32_t>(bytes), bytes.size());
    tokens.bytes.emplace_back(bytes.substr(0, num_bytes));
    bytes.remove_prefix(num_bytes);
  }
  return tokens;
}

std::string Pack(const CompileLimits& limits) {
  std::string bytes;
  AppendNumber(absl::ToInt64Microseconds(limits.max_time), bytes);
  AppendNumber(limits.max_memory_bytes, bytes);
  AppendNumber(limits.max_grammar_bytes, bytes);
  return bytes;
}

CompileLimits UnpackLimits(absl::string_view bytes) {
  CompileLimits limits;
  limits.max_time = absl::Microseconds(TakeNumber<int64_t>(bytes));
  limits.max_memory_bytes = TakeNumber<int64_t>(bytes);
  limits.max_grammar_bytes = TakeNumber<int64_t>(bytes);
  return limits;
}

// --- In the compile process ---

// Sanitizers reserve terabytes. The tsan build has the macro of the standard library and not GCC's
// (cmake/Targets.cmake).
#ifndef __has_feature
#define __has_feature(feature) 0  // Clang has it, and GCC has the macros
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(_GLIBCXX_TSAN) || __has_feature(address_sanitizer)
constexpr bool kLimitsMemory = false;
#else
constexpr bool kLimitsMemory = true;
#endif

int64_t AddressSpaceBytes() {
  char text[64] = {};
  const int fd = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
  const ssize_t num_read = fd < 0 ? 0 : read(fd, text, sizeof(text) - 1);
  if (fd >= 0) close(fd);
  return num_read <= 0 ? 0 : std::strtoll(text, nullptr, 10) * sysconf(_SC_PAGESIZE);
}

void Limit(const CompileLimits& limits) {
  const timeval time = absl::ToTimeval(limits.max_time);
  const itimerval timer = {.it_interval = {}, .it_value = time};
  setitimer(ITIMER_PROF, &timer, nullptr);  // its signal ends the child
  if (kLimitsMemory) {
    const auto most = static_cast<rlim_t>(AddressSpaceBytes() + limits.max_memory_bytes);
    const rlimit memory = {.rlim_cur = most, .rlim_max = most};
    setrlimit(RLIMIT_AS, &memory);
  }
  const rlimit no_core = {};
  setrlimit(RLIMIT_CORE, &no_core);
}

// The child: compiles, sends the result, ends.
[[noreturn]] void CompileAndExit(const GrammarSource& source, const GrammarVocabulary& vocabulary,
                                 const CompileLimits& limits) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  signal(SIGSEGV, SIG_DFL);  // a sanitizer would report a stack that the text has used up
  Limit(limits);
  Frame result = {.kind = kTooCostly, .bytes = "memory"};
  try {
    const auto grammar = Grammar::Compile(source, vocabulary);
    if (grammar.ok()) {
      std::string bytes = (*grammar)->Serialize();
      if (std::ssize(bytes) <= limits.max_grammar_bytes) result = {.kind = kGrammar, .bytes = std::move(bytes)};
    } else if (absl::IsInvalidArgument(grammar.status())) {
      result = {.kind = kRefusal, .bytes = std::string(grammar.status().message())};
    }
  } catch (const std::exception&) {  // no memory left for the serialized grammar
  }
  const itimerval no_timer = {};
  setitimer(ITIMER_PROF, &no_timer, nullptr);  // a frame is written whole or not at all
  _exit(WriteFrame(STDIN_FILENO, result.kind, result.bytes).ok() ? 0 : 1);
}

// Answers for a child that a signal has ended. The text is to blame for the signals that its own compilation raises:
// the timer's, a stack that is used up, and the end of a program that finds no memory and cannot throw. The limit of
// memory kills nobody: it makes allocations fail. So every other signal came from outside, as the one of a kernel
// without memory for anybody, and the same text may compile the next time. (Where the kernel does not overcommit
// memory, an allocation may also fail because the machine has no more. A child cannot see the difference.)
// Nobody knows how much of its answer such a child has sent. So it gets no other, and the process ends.
absl::Status AnswerForKilled(int signal) {
  switch (signal) {
    case SIGPROF:
      return WriteFrame(STDIN_FILENO, kTooCostly, "time");
    case SIGSEGV:
      return WriteFrame(STDIN_FILENO, kTooCostly, "depth");
    case SIGABRT:
    case SIGBUS:
    case SIGFPE:
    case SIGILL:
      return WriteFrame(STDIN_FILENO, kTooCostly, "memory");
    default:
      return absl::UnavailableError(absl::StrCat("signal ", signal, " came from outside"));
  }
}

// Runs the child, and answers for it if it could not. An error if no answer can be sent.
absl::Status CompileInChild(const GrammarSource& source, const GrammarVocabulary& vocabulary,
                            const CompileLimits& limits) {
  const pid_t child = fork();
  if (child < 0) return WriteFrame(STDIN_FILENO, kFault, absl::StrCat("cannot fork: ", std::strerror(errno)));
  if (child == 0) CompileAndExit(source, vocabulary, limits);
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFSIGNALED(status)) return AnswerForKilled(WTERMSIG(status));
  return WEXITSTATUS(status) == 0 ? absl::OkStatus() : absl::UnavailableError("a child could not answer");
}

}  // namespace

int ServeGrammars() {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  std::unique_ptr<const GrammarVocabulary> vocabulary;
  CompileLimits limits;
  while (true) {
    const absl::StatusOr<Frame> frame = ReadFrame(STDIN_FILENO);
    if (!frame.ok()) return absl::IsUnavailable(frame.status()) || absl::IsAborted(frame.status()) ? 0 : 1;
    if (frame->kind == kTokens) {
      vocabulary = std::make_unique<const GrammarVocabulary>(UnpackTokens(frame->bytes));
    } else if (frame->kind == kLimits) {
      limits = UnpackLimits(frame->bytes);
    } else if (frame->kind >= kText && vocabulary != nullptr) {
      const GrammarSource source = {.kind = static_cast<GrammarKind>(frame->kind - kText), .text = frame->bytes};
      if (!CompileInChild(source, *vocabulary, limits).ok()) return 1;
    }
  }
}

CompileProcess::CompileProcess(std::string program, GrammarTokens tokens, const CompileLimits& limits)
    : program_(std::move(program)), tokens_(std::move(tokens)), limits_(limits) {}

absl::Status CompileProcess::Start() {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) return absl::ErrnoToStatus(errno, "socketpair");
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDIN_FILENO);
  // The process must not keep the verifier's sockets open.
  posix_spawn_file_actions_addclosefrom_np(&actions, STDERR_FILENO + 1);
  const char* const arguments[] = {program_.c_str(), kServeGrammarsArgument, nullptr};
  const int error = posix_spawn(&pid_, program_.c_str(), &actions, nullptr, const_cast<char**>(arguments), environ);
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  channel_ = ends[0];
  if (error != 0) {
    pid_ = 0;
    return absl::UnavailableError(absl::StrCat("cannot start ", program_, ": ", std::strerror(error)));
  }
  const absl::Time deadline = SteadyNow() + kStartTime;
  FT_RETURN_IF_ERROR(WriteFrame(channel_, kTokens, Pack(tokens_), deadline));
  return WriteFrame(channel_, kLimits, Pack(limits_), deadline);
}

void CompileProcess::Stop() {
  if (channel_ >= 0) close(std::exchange(channel_, -1));
  if (pid_ == 0) return;
  kill(pid_, SIGKILL);
  while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
  pid_ = 0;
}

absl::StatusOr<std::string> CompileProcess::Compile(const GrammarSource& source) {
  const bool was_running = pid_ != 0;
  absl::StatusOr<Frame> answer = Ask(source);
  if (was_running && absl::IsAborted(answer.status())) {
    Stop();
    answer = Ask(source);
  }
  if (!answer.ok()) {
    Stop();  // a process that does not answer is useless, and its next answer would be to the wrong question
    if (absl::IsAborted(answer.status())) return absl::UnavailableError(answer.status().message());
    return answer.status();
  }
  if (answer->kind == kGrammar) return std::move(answer->bytes);
  if (answer->kind == kRefusal) {
    return absl::InvalidArgumentError(absl::string_view(answer->bytes).substr(0, kMaxRefusalBytes));
  }
  if (answer->kind == kFault) return absl::UnavailableError(answer->bytes);
  return base::WithReason(
      absl::InvalidArgumentError(absl::StrCat(
          "expected a form that compiles in ", absl::FormatDuration(limits_.max_time), " of a processor and ",
          limits_.max_memory_bytes >> 20, " MiB; got one that takes more ", answer->bytes)),
      kFormatTooCostly);
}

absl::StatusOr<Frame> CompileProcess::Ask(const GrammarSource& source) {
  if (pid_ == 0) FT_RETURN_IF_ERROR(Start());
  const absl::Time deadline = SteadyNow() + kClockPerProcessorTime * limits_.max_time + kStartTime;
  FT_RETURN_IF_ERROR(WriteFrame(channel_, kText + static_cast<uint32_t>(source.kind), source.text, deadline));
  return ReadFrame(channel_, deadline);
}

}  // namespace foretoken::verifier
