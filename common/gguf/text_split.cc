// SPDX-License-Identifier: Apache-2.0
#include "common/gguf/text_split.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "common/base/status_macros.h"

namespace foretoken::gguf {
namespace {

using nlohmann::json;

constexpr const char* kName = "tokenizer.ggml.pre";

// Patterns as the models' tokenizer.json files have them.
constexpr const char* kLlama3 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kQwen2 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kTekken =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kO200k =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
// One pattern after another.
constexpr const char* kDeepseekCoder[] = {R"([\r\n])", R"(\s?\p{L}+)", R"(\s?\p{P}+)",
                                          "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+", R"(\p{N})"};
// llama.cpp's default, one pattern after another.
constexpr const char* kDefault[] = {
    R"([\p{P}\$\+<=>\^~\|]+)",
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S))",
    R"(\p{N}+)",
    R"([0-9][0-9][0-9])",
};

enum class Form {
  kPatterns,        // the patterns alone
  kGpt2,            // GPT-2's pattern, which ByteLevel knows
  kGpt2WithDigits,  // the same after cutting digits apart
};

struct Kind {
  std::vector<absl::string_view> names;
  Form form = Form::kPatterns;
  std::vector<const char*> patterns;
  bool is_nfc = false;
  bool ignores_merges = false;
  bool adds_bos = false;
};

std::vector<Kind> Kinds() {
  return {
      {.names = {"default"}, .patterns = {std::begin(kDefault), std::end(kDefault)}},
      {.names = {"llama-bpe", "llama3", "llama-v3", "falcon3", "pixtral"},
       .patterns = {kLlama3},
       .ignores_merges = true,
       .adds_bos = true},
      {.names = {"dbrx", "smaug-bpe", "glm4", "chatglm-bpe"}, .patterns = {kLlama3}},
      {.names = {"qwen2"}, .patterns = {kQwen2}, .is_nfc = true},
      {.names = {"deepseek-r1-qwen"}, .patterns = {kQwen2}},
      {.names = {"deepseek-coder"}, .patterns = {std::begin(kDeepseekCoder), std::end(kDeepseekCoder)}},
      {.names = {"tekken"}, .patterns = {kTekken}, .ignores_merges = true, .adds_bos = true},
      {.names = {"gpt-4o", "llama4"}, .patterns = {kO200k}},
      {.names = {"gpt-2", "phi-2", "olmo"}, .form = Form::kGpt2},
      {.names = {"smollm", "starcoder", "refact", "command-r", "codeshell", "exaone"}, .form = Form::kGpt2WithDigits},
  };
}

json ByteLevel(bool adds_space, bool uses_pattern) {
  return {{"type", "ByteLevel"}, {"add_prefix_space", adds_space}, {"trim_offsets", true}, {"use_regex", uses_pattern}};
}

TextSplit MakeSplit(const Kind& kind, bool adds_space) {
  json steps = json::array();
  if (kind.form == Form::kGpt2WithDigits) steps.push_back({{"type", "Digits"}, {"individual_digits", true}});
  for (const char* pattern : kind.patterns) {
    steps.push_back(
        {{"type", "Split"}, {"pattern", {{"Regex", pattern}}}, {"behavior", "Isolated"}, {"invert", false}});
  }
  steps.push_back(ByteLevel(adds_space, kind.form != Form::kPatterns));
  return {.normalizer = kind.is_nfc ? json{{"type", "NFC"}} : json(),
          .pre_tokenizer = {{"type", "Sequence"}, {"pretokenizers", std::move(steps)}},
          .ignores_merges = kind.ignores_merges,
          .adds_bos = kind.adds_bos};
}

}  // namespace

absl::StatusOr<TextSplit> ReadTextSplit(const Metadata& metadata) {
  FT_ASSIGN_OR_RETURN(const std::string given, metadata.OrDefault<std::string>(kName, "default"));
  FT_ASSIGN_OR_RETURN(const bool adds_space, metadata.OrDefault<bool>("tokenizer.ggml.add_space_prefix", false));
  std::string known;
  for (const Kind& kind : Kinds()) {
    for (const absl::string_view name : kind.names) {
      if (name == given) return MakeSplit(kind, adds_space);
      absl::StrAppend(&known, known.empty() ? "" : ", ", name);
    }
  }
  return metadata.Error(kName, "expected one of ", known, ", got ", given);
}

}  // namespace foretoken::gguf
