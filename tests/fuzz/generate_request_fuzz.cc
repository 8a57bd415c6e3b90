// SPDX-License-Identifier: Apache-2.0
// Reads the input as the bytes of a GenerateRequest and, behind it, token trees of a proposer. A conversation becomes a
// prompt by a chat template, and a form becomes a grammar in a compile process. A small engine runs an accepted request
// to its end, once without speculation and once with the trees. The request ends with a named status or with complete
// samples, and every message can be read. Under the keyed draw, and at temperature 0, both runs give the same tokens,
// text, finish reason, and bits of log-probabilities.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/base/error_text.h"
#include "common/base/status_macros.h"
#include "common/chat/chat_template.h"
#include "common/rpc/parse_message.h"
#include "common/rpc/tree_conversion.h"
#include "kernels/check.h"
#include "kernels/make_backend.h"
#include "proposer_service/ngram/ngram.h"
#include "tests/fuzz/messages.h"
#include "tests/testing/fakes/in_process_proposers.h"
#include "tests/testing/models/random_model.h"
#include "tests/testing/paths.h"
#include "verifier_service/api/format_conversion.h"
#include "verifier_service/api/outbox.h"
#include "verifier_service/api/request_bounds.h"
#include "verifier_service/api/request_conversion.h"
#include "verifier_service/engine/engine.h"
#include "verifier_service/grammar/grammar_compiler.h"

namespace foretoken::verifier {
namespace {

constexpr int32_t kContextTokens = 64;
// These keep a request short enough to run a hundred of them per second.
constexpr int32_t kMostSamples = 3, kMaxTokens = 10, kMaxSteps = 400;
constexpr int32_t kMaxNodes = 32;
// Less than the verifier's own limits, so that a search sees many forms.
constexpr CompileLimits kCompileLimits = {.max_time = absl::Milliseconds(200), .max_grammar_bytes = int64_t{4} << 20};

// Reads all that a conversation has, and writes special tokens of the tokenizer.
constexpr char kChatTemplate[] = R"({{- bos_token -}}
{%- if tools -%}
  {{- 'tools: ' + tools | tojson + '\n' -}}
{%- endif -%}
{%- for message in messages -%}
  {%- if message.role not in ['system', 'user', 'assistant', 'tool'] -%}
    {{- raise_exception('unknown role ' + message.role) -}}
  {%- endif -%}
  {{- '<|reserved_special_token_0|>' + message.role + ':' + message.content | trim + (message.name or '') -}}
  {%- for call in message.tool_calls or [] -%}
    {{- call.name + ' ' + call.arguments | tojson -}}
  {%- endfor -%}
  {{- '<|eot_id|>' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}
  {{- '<|reserved_special_token_0|>assistant:' + (opening or '') -}}
{%- endif -%})";

chat::ChatTemplate SmallTemplate() {
  return chat::ChatTemplate::Parse({.standard = kChatTemplate, .special_tokens = {{"bos_token", "<|begin_of_text|>"}}},
                                   absl::UnixEpoch)
      .value();
}

model::ModelConfig SmallConfig(const tokenizer::Tokenizer& tokenizer) {
  return {.hidden_size = 32,
          .intermediate_size = 32,
          .num_layers = 2,
          .num_heads = 2,
          .num_kv_heads = 1,
          .head_dim = 16,
          .vocab_size = static_cast<int64_t>(tokenizer.vocabulary().num_ids()) + 3,
          .max_position_embeddings = kContextTokens,
          .sliding_windows = std::vector<std::optional<int64_t>>(2)};
}

// The output of a sample.
struct Sample {
  std::vector<uint32_t> token_ids;
  std::string text;
  std::string logprobs;  // bytes of messages, so that equal ones have equal bits; of the prompt, too
  v1::FinishReason finish_reason = v1::FINISH_REASON_UNSPECIFIED;
  friend bool operator==(const Sample&, const Sample&) = default;
};

struct Output {
  std::vector<Sample> samples;
  absl::Status status;
};

// Sends the trees of the input, one after the other, to every sequence. Token 0 of a tree of guesses stands for the
// token that the target draws at that place, so that trees are partly right.
class TreeSender {
 public:
  proposer::Proposer& proposer() { return proposer_; }
  void set_num_tokens(int32_t num_tokens) { num_tokens_ = num_tokens; }
  // `truth` is the output that the request has without speculation, `num_prompt_tokens` before it.
  void Send(std::vector<v1::TokenTree> trees, const std::vector<Sample>& truth, size_t num_prompt_tokens) {
    trees_ = std::move(trees);
    truth_ = truth;
    num_prompt_tokens_ = num_prompt_tokens;
  }

 private:
  speculation::TokenTree Next(const proposer::SessionIntroduction& introduction, size_t num_context_tokens) {
    if (trees_.empty()) return {};
    v1::TokenTree message = trees_[num_sent_++ % trees_.size()];
    if (introduction.sample_index < truth_.size() && num_context_tokens >= num_prompt_tokens_) {
      FillIn(truth_[introduction.sample_index].token_ids, num_context_tokens - num_prompt_tokens_, message);
    }
    absl::StatusOr<speculation::TokenTree> tree =
        rpc::FromProto(message, {.num_tokens = num_tokens_, .max_nodes = kMaxNodes});
    if (!tree.ok()) return {};
    const bool is_tested = introduction.rule == kernels::VerificationRule::kRejectionSampling;
    if (is_tested && !rpc::CheckDrawMethod(message).ok()) return {};
    if (!is_tested) tree->sampled.clear();  // as the session book does
    return *std::move(tree);
  }

  // `first` is the index of the drawn token that a child of the root guesses.
  static void FillIn(const std::vector<uint32_t>& drawn, size_t first, v1::TokenTree& message) {
    if (message.draw_method() == v1::DRAW_METHOD_SAMPLED) return;
    std::vector<size_t> places;  // of the nodes, in `drawn`
    for (int i = 0; i < std::min(message.token_ids_size(), message.parents_size()); ++i) {
      const int32_t parent = message.parents(i);
      places.push_back(parent >= 0 && parent < i ? places[parent] + 1 : first);
      if (message.token_ids(i) == 0 && places.back() < drawn.size()) message.set_token_ids(i, drawn[places.back()]);
    }
  }

  std::vector<v1::TokenTree> trees_;
  std::vector<Sample> truth_;
  size_t num_prompt_tokens_ = 0;
  size_t num_sent_ = 0;
  int32_t num_tokens_ = 0;
  testing::GuessingProposer proposer_{
      "sender", [this](const proposer::SessionIntroduction& introduction, std::span<const int32_t> context, int32_t) {
        return Next(introduction, context.size());
      }};
};

// A verifier without its network: the checks of a request, an engine that the caller steps, and the outbox.
class SmallVerifier {
 public:
  SmallVerifier() {
    model_.tokenizer = &tokenizer_;
    model_.chat_template = &chat_template_;
    model_.name = "small";
    model_.vocabulary_size = static_cast<int32_t>(tokenizer_.vocabulary().num_ids());
    model_.max_context_tokens = engine_.max_context_tokens();
    model_.end_token_ids = {kEndTokenId};
    model_.proposers = proposers_.Names();
    model_.max_tree_nodes = kMaxNodes;
    model_.allows_step_reports = true;
    sender_.set_num_tokens(model_.vocabulary_size);
    grammars_ = std::make_unique<GrammarCompiler>(
        GrammarCompilerOptions{.limits = kCompileLimits},
        TokensOf(tokenizer_.vocabulary(), model_.vocabulary_size, model_.end_token_ids));
    CheckKnown();
  }

  absl::StatusOr<GenerationRequest> Read(absl::string_view bytes) {
    v1::GenerateRequest message;
    if (absl::Status status = rpc::ParseMessage(bytes, bounds().generate, message); !status.ok()) return status;
    return Convert(message);
  }

  // With `trees` for the samples whose output is `truth`.
  Output Run(GenerationRequest request, std::vector<v1::TokenTree> trees, const std::vector<Sample>& truth) {
    sender_.Send(std::move(trees), truth, request.prompt.size());
    request.ticket = ++last_ticket_;
    Output output;
    output.samples.resize(static_cast<size_t>(request.num_samples));
    Outbox outbox({.request_id = request.request_id, .num_samples = request.num_samples});
    outbox_ = &outbox;
    output.status = engine_.Submit(engine_.Reserve().value(), std::move(request));
    if (!output.status.ok()) return output;
    int32_t num_steps = 0;
    while (engine_.Step()) {
      FT_CHECK(++num_steps < kMaxSteps);
      TakeMessages(outbox, output);
    }
    TakeMessages(outbox, output);
    const EngineStats stats = engine_.GetStats();
    FT_CHECK(stats.num_free_blocks + stats.num_cached_blocks == stats.num_blocks);
    FT_CHECK(stats.num_running == 0 && stats.num_queued == 0);
    FT_CHECK(outbox.Result().has_value());
    output.status = *outbox.Result();
    return output;
  }

 private:
  static constexpr int32_t kEndTokenId = 2;

  // Without what these requests hold, a search would end at the first check of a conversation or of a form.
  void CheckKnown() {
    v1::GenerateRequest message;
    v1::ChatMessage& said = *message.mutable_chat()->add_messages();
    said.set_role("user");
    said.set_content("Hello");
    message.mutable_response_format()->set_json_schema(R"({"type": "boolean"})");
    const absl::StatusOr<GenerationRequest> request = Convert(message);
    FT_CHECK(request.ok() && request->grammar != nullptr);
  }

  absl::StatusOr<GenerationRequest> Convert(const v1::GenerateRequest& message) {
    FT_ASSIGN_OR_RETURN(GenerationRequest request, ConvertRequest(message, model_, [] { return uint64_t{7}; }));
    FT_ASSIGN_OR_RETURN(const std::optional<GrammarSource> form, ConvertFormat(message, model_));
    if (!form.has_value()) return request;
    const GrammarCompiler::Result grammar = grammars_->Get(*form, "");
    if (!grammar.ok()) return FormatError(message.response_format(), grammar.status());
    request.grammar = *grammar;
    return request;
  }

  const RequestBounds& bounds() {
    if (bounds_ == nullptr) bounds_ = std::make_unique<RequestBounds>(model_);
    return *bounds_;
  }

  static void TakeMessages(Outbox& outbox, Output& output) {
    while (const std::optional<v1::GenerateResponse> sent = outbox.Take()) {
      v1::GenerateResponse message;
      FT_CHECK(message.ParseFromString(sent->SerializeAsString()));  // fails for a text that is not UTF-8
      Sample& sample = output.samples.at(message.sample_index());
      FT_CHECK(sample.finish_reason == v1::FINISH_REASON_UNSPECIFIED);
      sample.token_ids.insert(sample.token_ids.end(), message.token_ids().begin(), message.token_ids().end());
      sample.text += message.text();
      for (const v1::PositionLogprobs& logprobs : message.prompt().logprobs())
        logprobs.AppendToString(&sample.logprobs);
      for (const v1::PositionLogprobs& logprobs : message.logprobs()) logprobs.AppendToString(&sample.logprobs);
      if (message.has_completion()) sample.finish_reason = message.completion().finish_reason();
    }
  }

  const tokenizer::Tokenizer tokenizer_ =
      tokenizer::Tokenizer::Load(testing::SourcePath("tests/cases/tokenizer/llama3")).value();
  const chat::ChatTemplate chat_template_ = SmallTemplate();
  const model::ModelConfig config_ = SmallConfig(tokenizer_);
  const std::unique_ptr<kernels::Backend> backend_ =
      kernels::MakeBackend({.device = "cpu", .num_threads = 1, .isa = "auto"}).backend;
  model::Transformer transformer_{config_,
                                  testing::RandomWeights(config_, *backend_, /*scale=*/0.2f),
                                  *backend_,
                                  {.max_rows = 64, .max_logit_rows = 64, .max_positions = kContextTokens}};
  model::KvCache kv_ = transformer_.MakeKvCache(/*num_blocks=*/7);
  TreeSender sender_;
  proposer::NgramProposer ngram_{{}};
  testing::InProcessProposers proposers_{{&ngram_, &sender_.proposer()}};
  Outbox* outbox_ = nullptr;
  absl::Time now_ = absl::UnixEpoch();
  Engine engine_{EngineConfig{.max_running_samples = 4, .max_step_rows = 64, .max_tree_nodes = kMaxNodes},
                 {.transformer = &transformer_,
                  .kv = &kv_,
                  .tokenizer = &tokenizer_,
                  .proposers = &proposers_,
                  .end_token_ids = {kEndTokenId},
                  .publish =
                      [this](std::vector<SampleOutput> outputs) {
                        for (SampleOutput& output : outputs) outbox_->Add(std::move(output));
                      },
                  .now = [this] { return now_ += absl::Milliseconds(1); }}};
  ServedModel model_;
  std::unique_ptr<RequestBounds> bounds_;
  std::unique_ptr<GrammarCompiler> grammars_;
  Ticket last_ticket_ = 0;
};

void CheckEnd(const Output& output) {
  if (!output.status.ok()) {
    FT_CHECK(absl::IsInvalidArgument(output.status) || absl::IsResourceExhausted(output.status));
    return;
  }
  for (const Sample& sample : output.samples) {
    FT_CHECK(sample.finish_reason == v1::FINISH_REASON_STOP || sample.finish_reason == v1::FINISH_REASON_LENGTH);
  }
}

// An error of one sample ends the others at once, wherever they are.
bool AgreeSoFar(const Sample& a, const Sample& b) {
  const auto agree = [](const auto& x, const auto& y) {
    const auto size = static_cast<ptrdiff_t>(std::min(x.size(), y.size()));
    return std::equal(x.begin(), x.begin() + size, y.begin());
  };
  return agree(a.token_ids, b.token_ids) && agree(a.text, b.text) && agree(a.logprobs, b.logprobs);
}

}  // namespace
}  // namespace foretoken::verifier

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace foretoken;
  using namespace foretoken::verifier;
  // Not leaked: its end waits for the compile process, whose processor time then counts as this one's.
  static SmallVerifier verifier;
  const std::vector<absl::string_view> messages = testing::SplitMessages(data, size);
  absl::StatusOr<GenerationRequest> request = verifier.Read(messages.front());
  if (!request.ok()) {
    FT_CHECK(absl::IsInvalidArgument(request.status()) || absl::IsNotFound(request.status()) ||
             absl::IsFailedPrecondition(request.status()));
    return 0;
  }
  request->num_samples = std::min(request->num_samples, kMostSamples);
  request->stop.max_tokens = std::min(request->stop.max_tokens, kMaxTokens);
  request->stop.min_tokens = std::min(request->stop.min_tokens, request->stop.max_tokens);
  std::vector<v1::TokenTree> trees;
  for (size_t i = 1; i < std::min<size_t>(messages.size(), 8); ++i) {
    v1::TokenTree tree;
    if (tree.ParseFromArray(messages[i].data(), static_cast<int>(messages[i].size()))) trees.push_back(tree);
  }
  GenerationRequest unaided = *request;
  unaided.speculation.mode = SpeculationMode::kOff;
  const Output plain = verifier.Run(unaided, {}, {});
  CheckEnd(plain);
  const Output output = verifier.Run(*request, std::move(trees), plain.samples);
  CheckEnd(output);
  const bool is_keyed = request->verification == kernels::VerificationRule::kKeyedDraw;
  if (!is_keyed && request->sampling.temperature > 0) return 0;
  // Masks that took too long end a request by a clock.
  for (const absl::Status& status : {plain.status, output.status}) {
    if (base::ReasonOf(status) == kFormatTooCostly) return 0;
  }
  FT_CHECK(output.status == plain.status);
  if (output.status.ok()) {
    FT_CHECK(output.samples == plain.samples);
  } else {
    FT_CHECK(std::ranges::equal(output.samples, plain.samples, AgreeSoFar));
  }
  return 0;
}
