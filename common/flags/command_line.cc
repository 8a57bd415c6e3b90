// SPDX-License-Identifier: Apache-2.0
#include "common/flags/command_line.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <map>
#include <numeric>
#include <optional>
#include <utility>

#include "absl/flags/commandlineflag.h"
#include "absl/flags/parse.h"
#include "absl/flags/reflection.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "absl/time/time.h"
#include "common/base/status_macros.h"
#include "common/base/version.h"
#include "common/flags/type_in_words.h"

namespace foretoken::flags {
namespace {

constexpr size_t kHelpColumns = 100;
constexpr size_t kHelpIndent = 6;
constexpr size_t kMostEdits = 3;  // most edits between an unknown flag and the flag that the message suggests

// Abseil has these flags of its own. They set other flags, or take unknown ones, behind the checks of this file.
constexpr absl::string_view kRefusedFlags[] = {"flagfile", "fromenv", "tryfromenv", "undefok"};

bool IsRefused(absl::string_view name) {
  return std::find(std::begin(kRefusedFlags), std::end(kRefusedFlags), name) != std::end(kRefusedFlags);
}

template <typename T>
bool Is(const absl::CommandLineFlag& flag) {
  return flag.IsOfType<T>() || flag.IsOfType<std::optional<T>>();
}

// The values that a flag takes, in words. Unset: it takes any text.
std::optional<absl::string_view> ExpectedOf(const absl::CommandLineFlag& flag) {
  if (Is<absl::Duration>(flag)) return TypeInWords<absl::Duration>();
  if (Is<bool>(flag)) return TypeInWords<bool>();
  if (Is<float>(flag) || Is<double>(flag)) return TypeInWords<double>();
  if (Is<int32_t>(flag) || Is<int64_t>(flag)) return TypeInWords<int64_t>();
  if (Is<uint32_t>(flag) || Is<uint64_t>(flag)) return TypeInWords<uint64_t>();
  return std::nullopt;
}

// A flag found by a name with underscores or dashes. With `off`, the name turns the flag off.
struct Named {
  const absl::CommandLineFlag* flag = nullptr;
  bool is_off = false;
};

Named Find(absl::string_view typed) {
  const std::string name = absl::StrReplaceAll(typed, {{"-", "_"}});
  if (IsRefused(name)) return {};
  if (const absl::CommandLineFlag* flag = absl::FindCommandLineFlag(name)) return {.flag = flag};
  absl::string_view rest = name;
  if (!absl::ConsumePrefix(&rest, "no")) return {};
  absl::ConsumePrefix(&rest, "_");
  const absl::CommandLineFlag* flag = absl::FindCommandLineFlag(rest);
  if (flag == nullptr || !Is<bool>(*flag)) return {};
  return {.flag = flag, .is_off = true};
}

bool IsOfFile(const absl::CommandLineFlag& flag, const std::vector<std::string>& files) {
  const std::string file = flag.Filename();
  return std::any_of(files.begin(), files.end(), [&](const std::string& end) {
    return absl::EndsWith(file, absl::StrCat("/", end)) || file == end;
  });
}

bool IsOwn(const absl::CommandLineFlag& flag, const CommandLine& line) {
  return IsOfFile(flag, line.flag_files) ||
         std::find(line.flags.begin(), line.flags.end(), flag.Name()) != line.flags.end();
}

// Whether only other commands have the flag. Every command takes the flags of libraries.
bool IsOfOthers(const absl::CommandLineFlag& flag, const CommandLine& line) {
  return IsOfFile(flag, line.command_flag_files) && !IsOwn(flag, line);
}

// The least number of insertions, deletions and replacements that turn one text into the other.
size_t NumEdits(absl::string_view a, absl::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i + 1);
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t replaced = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, row[j + 1] + 1});
    }
  }
  return row.back();
}

absl::Status UnknownFlag(absl::string_view typed, const CommandLine& line) {
  const std::string name = absl::StrReplaceAll(typed, {{"-", "_"}});
  size_t fewest = std::min(kMostEdits, name.size() / 2) + 1;
  std::string hint;
  std::map<absl::string_view, absl::CommandLineFlag*> in_order;
  for (const auto& [other, flag] : absl::GetAllFlags()) in_order.emplace(other, flag);
  for (const auto& [other, flag] : in_order) {
    const size_t num_edits = NumEdits(name, other);
    if (num_edits >= fewest || IsRefused(other) || IsOfOthers(*flag, line)) continue;
    fewest = num_edits;
    hint = absl::StrCat("; is it --", other, "?");
  }
  return absl::InvalidArgumentError(
      absl::StrCat("unknown flag --", typed,
                   hint.empty() ? "; --help shows all flags, and arguments after -- are not flags" : hint));
}

std::vector<std::string> Words(absl::string_view text) { return absl::StrSplit(text, ' ', absl::SkipEmpty()); }

void AppendWrapped(absl::string_view text, std::string& help) {
  size_t column = kHelpColumns;
  for (const std::string& word : Words(text)) {
    if (column + 1 + word.size() > kHelpColumns) {
      absl::StrAppend(&help, help.empty() ? "" : "\n", std::string(kHelpIndent, ' '), word);
      column = kHelpIndent + word.size();
    } else {
      absl::StrAppend(&help, " ", word);
      column += 1 + word.size();
    }
  }
}

// Sets the flag, as Abseil does once more afterwards.
absl::Status CheckValue(absl::string_view name, absl::string_view value) {
  absl::CommandLineFlag* flag = absl::FindCommandLineFlag(name);
  const std::optional<absl::string_view> expected = ExpectedOf(*flag);
  std::string ignored;  // Abseil's error, which does not say what the flag takes
  if (!expected.has_value() || flag->ParseFrom(value, &ignored)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("--", name, ": expected ", *expected, ", got \"", value, "\""));
}

absl::Status CheckValues(const std::vector<std::string>& words, const std::vector<std::string>& needs_value) {
  for (size_t i = 0; i < words.size() && words[i] != "--"; ++i) {
    absl::string_view word = words[i];
    if (!absl::ConsumePrefix(&word, "--")) continue;
    const size_t equals = word.find('=');
    const absl::string_view name = word.substr(0, equals);
    std::optional<absl::string_view> value;
    if (equals != absl::string_view::npos) {
      value = word.substr(equals + 1);
    } else if (i + 1 < words.size()) {
      value = words[++i];
    }
    const bool may_not_be_empty = std::find(needs_value.begin(), needs_value.end(), name) != needs_value.end();
    if (!value.has_value() || (may_not_be_empty && value->empty())) {
      return absl::InvalidArgumentError(absl::StrCat("--", name, ": expected a value, got none"));
    }
    FT_RETURN_IF_ERROR(CheckValue(name, *value));
  }
  return absl::OkStatus();
}

[[noreturn]] void Exit(int code) {
  std::fflush(stdout);
  std::exit(code);
}

}  // namespace

absl::StatusOr<std::vector<std::string>> AbseilArguments(const std::vector<std::string>& arguments,
                                                         const CommandLine& line) {
  std::vector<std::string> result;
  for (size_t i = 0; i < arguments.size(); ++i) {
    absl::string_view argument = arguments[i];
    if (argument == "--") {
      result.insert(result.end(), arguments.begin() + static_cast<ptrdiff_t>(i), arguments.end());
      break;
    }
    if (argument.size() < 2 || !absl::ConsumePrefix(&argument, "-")) {
      result.push_back(arguments[i]);
      continue;
    }
    absl::ConsumePrefix(&argument, "-");
    const size_t equals = argument.find('=');
    const bool has_value = equals != absl::string_view::npos;
    const auto [flag, is_off] = Find(argument.substr(0, equals));
    if (flag == nullptr || (is_off && has_value)) return UnknownFlag(argument.substr(0, equals), line);
    if (IsOfOthers(*flag, line)) {
      return absl::InvalidArgumentError(
          absl::StrCat("--", flag->Name(), " is a flag of other commands; --help shows the flags of this one"));
    }
    if (has_value) {
      result.push_back(absl::StrCat("--", flag->Name(), argument.substr(equals)));
    } else if (is_off) {
      result.push_back(absl::StrCat("--", flag->Name(), "=false"));
    } else if (Is<bool>(*flag)) {
      // The next word is the flag's value if it is "true" or "false".
      const bool is_next = i + 1 < arguments.size() && (arguments[i + 1] == "true" || arguments[i + 1] == "false");
      result.push_back(absl::StrCat("--", flag->Name(), "=", is_next ? arguments[++i] : "true"));
    } else {
      result.push_back(absl::StrCat("--", flag->Name()));
      if (i + 1 < arguments.size()) result.push_back(arguments[++i]);
    }
  }
  return result;
}

std::string VersionLine(const std::string& program) { return absl::StrCat(program, " ", base::Version()); }

std::string HelpText(const CommandLine& line) {
  std::string help = absl::StrCat(line.program, ": ", line.summary, "\n\nusage: ", line.program, " [--FLAG=VALUE]...",
                                  line.arguments.empty() ? "" : " ", line.arguments, "\n\n");
  std::map<absl::string_view, absl::CommandLineFlag*> in_order;
  for (const auto& [name, flag] : absl::GetAllFlags()) {
    if (IsOwn(*flag, line)) in_order.emplace(name, flag);
  }
  for (const auto& [name, flag] : in_order) {
    absl::StrAppend(&help, "  --", name);
    if (const std::string value = flag->DefaultValue(); !value.empty())
      absl::StrAppend(&help, " (default ", value, ")");
    AppendWrapped(flag->Help(), help);
    absl::StrAppend(&help, "\n");
  }
  return help;
}

std::vector<std::string> ParseCommandLine(const std::vector<std::string>& arguments, const CommandLine& line) {
  const auto end = std::find(arguments.begin(), arguments.end(), "--");
  const auto has = [&](std::initializer_list<absl::string_view> names) {
    return std::any_of(arguments.begin(), end, [&](const std::string& argument) {
      return std::find(names.begin(), names.end(), argument) != names.end();
    });
  };
  if (has({"--help", "-help", "-h", "--helpshort", "-helpshort"})) {
    std::fputs(HelpText(line).c_str(), stdout);
    Exit(0);
  }
  if (has({"--version", "-version"})) {
    std::printf("%s\n", VersionLine(line.program).c_str());
    Exit(0);
  }
  absl::StatusOr<std::vector<std::string>> words = AbseilArguments(arguments, line);
  if (words.ok()) {
    if (const absl::Status checked = CheckValues(*words, line.needs_value); !checked.ok()) words = checked;
  }
  if (!words.ok()) {
    std::fprintf(stderr, "%s: %s\n", line.program.c_str(), std::string(words.status().message()).c_str());
    Exit(1);
  }
  words->insert(words->begin(), line.program);
  std::vector<char*> argv;
  for (std::string& word : *words) argv.push_back(word.data());
  const std::vector<char*> left = absl::ParseCommandLine(static_cast<int>(argv.size()), argv.data());
  return {left.begin() + 1, left.end()};
}

}  // namespace foretoken::flags
