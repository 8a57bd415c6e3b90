// SPDX-License-Identifier: Apache-2.0
// Gives out compiled grammars: from a cache by content, or from the compile process. What a compilation refused is
// cached, too, so that a client cannot make the server try it again and again.
//
// Memory: the cache has a bound, and so has what requests hold beyond it. A grammar counts until its last user has
// gone.
//
// Threads: any. One text is compiled at a time; further callers wait. The verifier calls it from a thread that only
// compiles.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "common/telemetry/line_limit.h"
#include "verifier_service/grammar/compile_process.h"
#include "verifier_service/grammar/grammar.h"

namespace foretoken::verifier {

struct GrammarCompilerOptions {
  // Runs as the compile process (compile_process.h).
  std::string program = "/proc/self/exe";
  CompileLimits limits;
  int64_t max_cache_bytes = int64_t{256} << 20;
  // Of the grammars that only requests hold. Then the compiler compiles nothing; one more may have been compiled
  // before.
  int64_t max_held_bytes = int64_t{1} << 30;
};

class GrammarCompiler {
 public:
  using Result = absl::StatusOr<std::shared_ptr<const Grammar>>;

  GrammarCompiler(GrammarCompilerOptions options, GrammarTokens tokens);

  // The cached grammar or the cached refusal. Unset: the source must be compiled. Does not wait for a compilation.
  std::optional<Result> Find(const GrammarSource& source);
  // Compiles the source if it is not cached. INVALID_ARGUMENT with XGrammar's reason, or with FORMAT_TOO_COSTLY.
  // UNAVAILABLE: the compile process is at fault, and a retry may help. RESOURCE_EXHAUSTED, GRAMMARS_FULL: requests
  // hold as much as they may.
  Result Get(const GrammarSource& source);

  int64_t num_cached_bytes() const;
  int64_t num_held_bytes() const;  // of the grammars that only requests hold

 private:
  struct Entry {
    std::string key;
    Result result;
    int64_t num_bytes = 0;
  };

  Result Compile(const GrammarSource& source) ABSL_EXCLUSIVE_LOCKS_REQUIRED(process_mutex_);
  void Add(Entry entry) ABSL_LOCKS_EXCLUDED(mutex_);
  std::optional<Result> FindKey(const std::string& key) ABSL_LOCKS_EXCLUDED(mutex_);

  const GrammarCompilerOptions options_;
  absl::Mutex process_mutex_ ABSL_ACQUIRED_BEFORE(mutex_);
  GrammarTokens tokens_ ABSL_GUARDED_BY(process_mutex_);                         // until the first compilation
  std::optional<GrammarVocabulary> vocabulary_ ABSL_GUARDED_BY(process_mutex_);  // made for the first compilation
  std::unique_ptr<CompileProcess> process_ ABSL_GUARDED_BY(process_mutex_);
  telemetry::LineLimit fault_lines_ ABSL_GUARDED_BY(process_mutex_);

  const std::shared_ptr<std::atomic<int64_t>> num_live_bytes_;  // of all grammars; they may outlive the compiler
  mutable absl::Mutex mutex_;
  std::list<Entry> entries_ ABSL_GUARDED_BY(mutex_);  // the most recently used first
  absl::flat_hash_map<std::string, std::list<Entry>::iterator> by_key_ ABSL_GUARDED_BY(mutex_);
  int64_t num_cached_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace foretoken::verifier
