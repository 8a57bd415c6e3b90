// SPDX-License-Identifier: Apache-2.0
// Compiles grammars in a process of its own, because a compilation can be stopped only from outside. A hostile text may
// take any time, any memory, or the stack.
//
// The verifier starts its own program again (main.cc calls ServeGrammars). That process learns the vocabulary once. For
// every text it forks a child. The child limits its own processor time and memory, compiles, and sends the result. The
// kernel ends a child that goes beyond its limits.
//
//   verifier -- tokens, once; text --> compile process -- fork --> child
//            <----------------------- result, or why there is none
//
// Errors: INVALID_ARGUMENT for a text that XGrammar refuses, and, with the reason FORMAT_TOO_COSTLY, for a text beyond
// the limits. UNAVAILABLE or DEADLINE_EXCEEDED if the process does not start or does not answer, and UNAVAILABLE if the
// machine lets it make no child or kills the child. No such error says anything about the text. If the process has
// ended since the last text, it is started again, and the text is sent again, because nobody has read it. A text that
// was read is never sent again, because it may be what ended the process. Threads: one at a time.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "verifier_service/grammar/frames.h"
#include "verifier_service/grammar/grammar.h"

namespace foretoken::verifier {

struct CompileLimits {
  absl::Duration max_time = absl::Seconds(1);  // of a processor, per text
  int64_t max_memory_bytes = int64_t{512} << 20;
  int64_t max_grammar_bytes = int64_t{64} << 20;  // serialized, because the verifier has to parse it
};

// A longer reason of a refusal is cut: XGrammar's quote parts of the text, of any length.
inline constexpr size_t kMaxRefusalBytes = 1024;

// The argument with which a program runs as the compile process.
inline constexpr char kServeGrammarsArgument[] = "--serve_grammars_to_parent";
// Serves the socket at standard input until the parent closes it. Returns the exit status.
int ServeGrammars();

class CompileProcess {
 public:
  // `program` is started with kServeGrammarsArgument when the first text comes, and again after a fault.
  CompileProcess(std::string program, GrammarTokens tokens, const CompileLimits& limits);
  CompileProcess(const CompileProcess&) = delete;
  CompileProcess& operator=(const CompileProcess&) = delete;
  ~CompileProcess() { Stop(); }

  // Returns the serialized grammar.
  absl::StatusOr<std::string> Compile(const GrammarSource& source);

  pid_t pid() const { return pid_; }  // 0: not running

 private:
  absl::Status Start();
  void Stop();
  absl::StatusOr<Frame> Ask(const GrammarSource& source);

  const std::string program_;
  const GrammarTokens tokens_;
  const CompileLimits limits_;
  pid_t pid_ = 0;
  int channel_ = -1;
};

}  // namespace foretoken::verifier
