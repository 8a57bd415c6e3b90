// SPDX-License-Identifier: Apache-2.0
#include "common/chat/template_nesting.h"

#include <algorithm>
#include <cstddef>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace foretoken::chat {
namespace {

using jinja::token;

template <typename... Parts>
absl::Status Refuse(const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat("chat template: expected at most ", parts...));
}

// The change that the token makes to the number of open brackets.
int BracketStep(token::type type) {
  switch (type) {
    case token::open_paren:
    case token::open_square_bracket:
    case token::open_curly_bracket:
      return 1;
    case token::close_paren:
    case token::close_square_bracket:
    case token::close_curly_bracket:
      return -1;
    default:
      return 0;
  }
}

bool Closes(token::type type) { return type == token::close_expression || type == token::close_statement; }

class Nesting {
 public:
  absl::Status Check(const std::vector<token>& tokens) {
    for (size_t i = 0; i < tokens.size(); ++i) {
      const token::type type = tokens[i].t;
      if (type != token::open_expression && type != token::open_statement) continue;
      const size_t begin = i + 1;
      for (i = begin; i < tokens.size() && !Closes(tokens[i].t); ++i) {
      }
      if (const absl::Status status = CheckTag(tokens, begin, i); !status.ok()) return status;
      if (type == token::open_statement) TakeStatement(tokens, begin, i);
      if (num_blocks_ > kMaxOpenBlocks) return Refuse(kMaxOpenBlocks, " blocks inside each other, got more");
    }
    return absl::OkStatus();
  }

 private:
  static absl::Status CheckTag(const std::vector<token>& tokens, size_t begin, size_t end) {
    if (end - begin > kMaxTagTokens) return Refuse(kMaxTagTokens, " names and signs in a tag, got ", end - begin);
    int num_brackets = 0;
    for (size_t i = begin; i < end; ++i) {
      num_brackets += BracketStep(tokens[i].t);
      if (num_brackets > kMaxOpenBrackets) return Refuse(kMaxOpenBrackets, " brackets inside each other, got more");
    }
    return absl::OkStatus();
  }

  // Counts the block that the statement opens or closes. The parser refuses a statement that closes another block than
  // the last one.
  void TakeStatement(const std::vector<token>& tokens, size_t begin, size_t end) {
    constexpr absl::string_view kBlocks[] = {"if", "for", "macro", "call", "filter"};
    const std::string& name = begin < end ? tokens[begin].value : "";
    if (std::ranges::count(kBlocks, name) > 0 || (name == "set" && !Assigns(tokens, begin, end))) {
      levels_.push_back(1);
      ++num_blocks_;
    } else if (name == "elif") {
      if (!levels_.empty()) ++levels_.back();
      ++num_blocks_;
    } else if (absl::StartsWith(name, "end") && name != "endgeneration" && !levels_.empty()) {
      num_blocks_ -= levels_.back();
      levels_.pop_back();
    }
  }

  // Whether a set statement has its value in the tag.
  static bool Assigns(const std::vector<token>& tokens, size_t begin, size_t end) {
    int num_brackets = 0;
    for (size_t i = begin; i < end; ++i) {
      num_brackets += BracketStep(tokens[i].t);
      if (num_brackets == 0 && tokens[i].t == token::equals) return true;
    }
    return false;
  }

  std::vector<int> levels_;  // of the open blocks
  int num_blocks_ = 0;       // their sum
};

}  // namespace

absl::Status CheckNesting(const std::vector<token>& tokens) { return Nesting().Check(tokens); }

}  // namespace foretoken::chat
