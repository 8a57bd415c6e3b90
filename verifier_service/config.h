// SPDX-License-Identifier: Apache-2.0
// The configuration of a verifier, checked once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/rpc/server.h"
#include "kernels/backend_options.h"
#include "verifier_service/api/unread_outputs.h"
#include "verifier_service/engine/engine.h"
#include "verifier_service/grammar/grammar_compiler.h"

namespace foretoken::verifier {

struct Config {
  std::string model_directory;  // or a GGUF file
  std::string model_name;       // empty: the directory's base name
  std::string listen_address = "127.0.0.1:50051";
  rpc::ServerSecurity security;
  std::string token_file;            // bearer tokens of clients; empty: none are asked for
  rpc::TlsFiles proposer_tls;        // of connections to proposers
  std::string projection_directory;  // where proposers left their projections; empty: none
  std::string metrics_address;       // empty: none
  std::string metrics_compat;        // vllm: its names too; empty: only our own
  std::string log_format = "text";   // or json
  std::string log_level = "info";
  std::string device = "cpu";
  std::string cpu_isa = "auto";
  kernels::QuantizationOptions quantization;
  std::string numerics_fingerprint;           // expected fingerprint; empty: any
  int32_t num_threads = 0;                    // 0: one per core
  int32_t tensor_parallel = 1;                // ranks that share the model and the threads
  std::optional<int64_t> kv_cache_mb;         // MiB of K/V; unset: 8 full contexts, at most 4 GiB
  std::optional<int64_t> expert_memory_mb;    // MiB of packed experts; unset: all of them
  std::optional<int32_t> max_context_tokens;  // unset: the model's
  EngineConfig engine;
  GrammarCompilerOptions grammars;
  int32_t max_compilations = 16;       // of response formats that wait or run
  std::vector<std::string> proposers;  // specs, as in proposer_pool.h
  // A step report shows guesses. A guess may be part of another request's output that a proposer remembers.
  bool allow_step_reports = false;
  bool trace_steps = false;  // a recorded trace has every step and every proposal
  // A request in this mode takes rows at any cost to other requests.
  bool allow_always_speculation = true;
  bool vllm_engine = true;   // serve vLLM's contract, too, for gateways
  int32_t max_lookups = 16;  // Tokenize and Detokenize calls that wait or run
  int64_t max_prompt_bytes = int64_t{4} << 20;
  int64_t max_receive_bytes = int64_t{16} << 20;  // of one message
  UnreadLimits unread;
  absl::Duration engine_stall_timeout = absl::Seconds(30);  // a longer step makes the server unhealthy
  absl::Duration drain_grace = absl::Seconds(30);           // for running requests, after SIGTERM
  std::optional<absl::Duration> max_connection_age;         // of a client's connection; unset: no limit
};

// Returns INVALID_ARGUMENT with the flag, the expected value and the given one.
absl::Status Validate(const Config& config);

// The last part of a path: "models/llama/" -> "llama", "llama.gguf" -> "llama".
std::string BaseName(const std::string& directory);
// The model's name in requests.
std::string ServedName(const Config& config);

}  // namespace foretoken::verifier
