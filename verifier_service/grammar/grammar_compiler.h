// SPDX-License-Identifier: Apache-2.0
// Gives out compiled grammars: from a cache by content, or from the compile process. What a compilation refused is
// cached, too, so that a client cannot make the server try it again and again.
//
// Memory: the cache has a bound, and so has what requests hold beyond it. A grammar counts until its last user has
// gone, for the tenant that had it compiled, and one tenant's grammars may take half of that bound.
//
// Threads: any. One text is compiled at a time; further callers wait. The verifier calls it from a thread that only
// compiles.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
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
  // Of the grammars that only requests hold, half of it of one tenant. Then the compiler compiles nothing, or nothing
  // for the tenant; one more may have been compiled before. For a tenant that holds none it compiles one until there is
  // twice as much.
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
  // hold as much as they may, or those of the tenant do.
  Result Get(const GrammarSource& source, const std::string& tenant);

  int64_t num_cached_bytes() const;
  // Of the grammars that only requests hold: of all, and of those that the tenant had compiled.
  int64_t num_held_bytes() const;
  int64_t num_held_bytes(const std::string& tenant) const;

 private:
  struct Entry {
    std::string key;
    Result result;
    std::string tenant;     // that had it compiled
    int64_t num_bytes = 0;  // of the grammar
  };
  struct GrammarBytes {
    void Add(const std::string& tenant, int64_t num_bytes);
    int64_t Of(const std::string& tenant) const;

    int64_t total = 0;
    std::map<std::string, int64_t> by_tenant = {};  // without zeros
  };
  // Of all grammars that have a user. They may outlive the compiler.
  struct LiveBytes {
    absl::Mutex mutex;
    GrammarBytes bytes ABSL_GUARDED_BY(mutex);
  };
  static std::shared_ptr<const Grammar> Counted(std::shared_ptr<const Grammar> grammar, const std::string& tenant,
                                                std::shared_ptr<LiveBytes> live);

  absl::Status CheckHeld(const std::string& tenant) const ABSL_LOCKS_EXCLUDED(mutex_);
  Result Compile(const GrammarSource& source, const std::string& tenant) ABSL_EXCLUSIVE_LOCKS_REQUIRED(process_mutex_);
  void Add(Entry entry) ABSL_LOCKS_EXCLUDED(mutex_);
  std::optional<Result> FindKey(const std::string& key) ABSL_LOCKS_EXCLUDED(mutex_);

  const GrammarCompilerOptions options_;
  absl::Mutex process_mutex_ ABSL_ACQUIRED_BEFORE(mutex_);
  GrammarTokens tokens_ ABSL_GUARDED_BY(process_mutex_);                         // until the first compilation
  std::optional<GrammarVocabulary> vocabulary_ ABSL_GUARDED_BY(process_mutex_);  // made for the first compilation
  std::unique_ptr<CompileProcess> process_ ABSL_GUARDED_BY(process_mutex_);
  telemetry::LineLimit fault_lines_ ABSL_GUARDED_BY(process_mutex_);

  const std::shared_ptr<LiveBytes> live_;  // its mutex is taken last
  mutable absl::Mutex mutex_;
  std::list<Entry> entries_ ABSL_GUARDED_BY(mutex_);  // the most recently used first
  absl::flat_hash_map<std::string, std::list<Entry>::iterator> by_key_ ABSL_GUARDED_BY(mutex_);
  int64_t num_cached_bytes_ ABSL_GUARDED_BY(mutex_) = 0;  // of all entries
  GrammarBytes cached_ ABSL_GUARDED_BY(mutex_);           // of their grammars
};

}  // namespace foretoken::verifier
