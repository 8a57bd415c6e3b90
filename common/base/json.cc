// SPDX-License-Identifier: Apache-2.0
#include "common/base/json.h"

#include <algorithm>
#include <set>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/base/mapped_file.h"
#include "common/base/status_macros.h"

namespace foretoken::base {
namespace {

// Calls `visit` with each character outside of strings, until it returns an error. Right for JSON; the parser refuses
// all other text later.
template <typename Visit>
absl::Status VisitOutsideStrings(absl::string_view text, const Visit& visit) {
  bool is_in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '"') is_in_string = !is_in_string;
    if (!is_in_string) {
      FT_RETURN_IF_ERROR(visit(text[i]));
    } else if (text[i] == '\\') {
      ++i;
    }
  }
  return absl::OkStatus();
}

absl::Status CheckShape(absl::string_view text, absl::string_view source, int max_names) {
  int depth = 0;
  int num_names[kMaxJsonDepth + 1] = {};  // so far, of the list or object that is open at each depth
  return VisitOutsideStrings(text, [&](char c) {
    if (c == ']' || c == '}') depth = std::max(0, depth - 1);
    if (c == '[' || c == '{') {
      if (++depth > kMaxJsonDepth) {
        return absl::InvalidArgumentError(
            absl::StrCat(source, ": expected JSON of at most ", kMaxJsonDepth, " nested levels, got more"));
      }
      num_names[depth] = 0;
    }
    if (c == ':' && ++num_names[depth] > max_names) {
      return absl::InvalidArgumentError(
          absl::StrCat(source, ": expected JSON objects of at most ", max_names, " names, got one with more"));
    }
    return absl::OkStatus();
  });
}

// Hears what the parser reads, and stops it at the first name that an object has twice. The library's other way to
// follow a parser, a callback, visits all values of an object again for each object in it: quadratic time.
class NameCheck : public nlohmann::json_sax<nlohmann::json> {
 public:
  const std::optional<std::string>& repeated() const { return repeated_; }

  bool start_object(size_t) override {
    open_.emplace_back();
    return true;
  }
  bool key(std::string& name) override {
    if (open_.back().insert(name).second) return true;
    repeated_ = name;
    return false;
  }
  bool end_object() override {
    open_.pop_back();
    return true;
  }

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(int64_t) override { return true; }
  bool number_unsigned(uint64_t) override { return true; }
  bool number_float(double, const std::string&) override { return true; }
  bool string(std::string&) override { return true; }
  bool binary(nlohmann::json::binary_t&) override { return true; }
  bool start_array(size_t) override { return true; }
  bool end_array() override { return true; }
  bool parse_error(size_t, const std::string&, const nlohmann::json::exception&) override { return false; }

 private:
  // The names so far, of each object that is open. No choice of names makes a tree slow.
  std::vector<std::set<std::string>> open_;
  std::optional<std::string> repeated_;
};

template <typename Json>
absl::StatusOr<Json> Parse(absl::string_view text, absl::string_view source) {
  try {
    return Json::parse(text.begin(), text.end());
  } catch (const nlohmann::json::parse_error& error) {
    const absl::string_view before = text.substr(0, error.byte == 0 ? 0 : error.byte - 1);
    const size_t line_begin = before.rfind('\n') + 1;
    return absl::InvalidArgumentError(absl::StrCat(source, ": not valid JSON from line ",
                                                   std::ranges::count(before, '\n') + 1, ", byte ",
                                                   before.size() - line_begin + 1, " on"));
  } catch (const nlohmann::json::exception&) {  // a number beyond all doubles
    return absl::InvalidArgumentError(absl::StrCat(source, ": not valid JSON"));
  }
}

}  // namespace

absl::StatusOr<nlohmann::json> ParseJson(absl::string_view text, absl::string_view source) {
  FT_RETURN_IF_ERROR(CheckShape(text, source, kAnyNames));
  return Parse<nlohmann::json>(text, source);
}

absl::StatusOr<nlohmann::ordered_json> ParseOrderedJson(absl::string_view text, absl::string_view source,
                                                        int max_names) {
  FT_RETURN_IF_ERROR(CheckShape(text, source, max_names));
  return Parse<nlohmann::ordered_json>(text, source);
}

size_t CountJsonValues(absl::string_view text) {
  size_t count = 1;
  VisitOutsideStrings(text, [&](char c) {
    if (c == ',' || c == '[' || c == '{') ++count;
    return absl::OkStatus();
  }).IgnoreError();
  return count;
}

std::optional<std::string> FindRepeatedName(absl::string_view text) {
  NameCheck check;
  nlohmann::json::sax_parse(text.begin(), text.end(), &check);
  return check.repeated();
}

absl::StatusOr<nlohmann::json> ReadJson(const std::string& path) {
  FT_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  return ParseJson(text, path);
}

}  // namespace foretoken::base
