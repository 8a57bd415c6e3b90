// SPDX-License-Identifier: Apache-2.0
// foretoken compare: shows the same texts with speculation off and on, side by side, with their times.
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <iostream>
#include <optional>
#include <span>
#include <utility>

#include "absl/flags/flag.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "client/commands/color_flag.h"
#include "client/commands/commands.h"
#include "client/commands/connect_flags.h"
#include "client/commands/interrupt.h"
#include "client/commands/prompts.h"
#include "client/commands/request_flags.h"
#include "client/comparison.h"
#include "client/terminal.h"
#include "client/text_attribution.h"
#include "client/two_columns.h"
#include "common/base/status_macros.h"
#include "common/base/steady_clock.h"

ABSL_FLAG(std::optional<uint32_t>, show, std::nullopt,
          "Number of texts to show; each other text takes one line; default: all");

namespace foretoken::client {
namespace {

using foretoken::v1::GenerateRequest;
using foretoken::v1::GenerateResponse;

constexpr int kWidth = 100;
constexpr absl::Duration kRedrawInterval = absl::Milliseconds(30);

// The height of a terminal with at least kWidth columns, which shows texts while they grow. Unset: any other output.
std::optional<int> TerminalRows() {
  winsize size = {};
  const bool is_terminal = isatty(STDOUT_FILENO) == 1 && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0;
  if (!is_terminal || size.ws_col < kWidth || size.ws_row < 3) return std::nullopt;
  return size.ws_row;
}

// The two columns of one text.
class Panel {
 public:
  explicit Panel(bool color) : columns_{.width = kWidth, .color = color}, terminal_rows_(TerminalRows()) {}

  void Append(bool on, const GenerateResponse& response) {
    std::vector<TextRun>& runs = on ? columns_.right : columns_.left;
    for (TextRun& run : attribution_[on ? 1 : 0].Append(response)) runs.push_back(std::move(run));
    if (!terminal_rows_.has_value() || SteadyNow() < last_drawn_ + kRedrawInterval) return;
    std::vector<std::string> lines = ToLines(columns_);
    const size_t num_fitting = *terminal_rows_ - 1;  // the cursor cannot return to lines that have scrolled away
    if (lines.size() > num_fitting) lines.erase(lines.begin(), lines.end() - static_cast<ptrdiff_t>(num_fitting));
    Draw(lines);
  }

  void Finish() { Draw(ToLines(columns_)); }

 private:
  void Draw(const std::vector<std::string>& lines) {
    if (num_drawn_ > 0) std::cout << "\x1b[" << num_drawn_ << "A\x1b[J";
    for (const std::string& line : lines) std::cout << line << "\n";
    std::cout << std::flush;
    num_drawn_ = lines.size();
    last_drawn_ = SteadyNow();
  }

  TwoColumns columns_;
  TextAttribution attribution_[2];
  const std::optional<int> terminal_rows_;
  size_t num_drawn_ = 0;
  absl::Time last_drawn_ = absl::InfinitePast();
};

struct Timed {
  TimedGeneration generation;

  // To the arrival of the last tokens, before they are drawn.
  absl::Duration wall() const { return generation.time_to_last_token(); }
  uint64_t num_tokens() const {
    uint64_t sum = 0;
    for (const Sample& sample : generation.generation.samples) sum += sample.token_ids.size();
    return sum;
  }
  // 0 if no token came.
  double tokens_per_s() const {
    return wall() > absl::ZeroDuration() ? static_cast<double>(num_tokens()) / absl::ToDoubleSeconds(wall()) : 0;
  }
};

struct Pair {
  Timed off, on;

  bool is_ok() const { return off.generation.status.ok() && on.generation.status.ok(); }
  bool is_equal() const {
    return Differences({.name = "off", .generations = {&off.generation, 1}},
                       {.name = "on", .generations = {&on.generation, 1}})
        .empty();
  }
  double ratio() const { return off.tokens_per_s() > 0 ? on.tokens_per_s() / off.tokens_per_s() : 0; }
  std::string Verdict() const {
    return is_ok() ? absl::StrFormat("%.2fx, token ids %s", ratio(), is_equal() ? "equal" : "NOT equal") : "failed";
  }
};

std::string Duration(const Timed& timed) {
  const double seconds = absl::ToDoubleSeconds(timed.wall());
  return seconds < 0.1 ? absl::StrFormat("%.0f ms", 1000 * seconds) : absl::StrFormat("%.2f s", seconds);
}

void PrintHeader(absl::string_view title, const std::string& prompt, bool color) {
  std::cout << "\n" << Paint(title, color ? Ink::kBold : Ink::kPlain) << "\n";
  const std::string shown = ForTerminal({.text = prompt}, /*color=*/false);
  for (const absl::string_view line : absl::StrSplit(absl::StripTrailingAsciiWhitespace(shown), '\n')) {
    std::cout << Paint(line.empty() ? "" : absl::StrCat("  ", line), color ? Ink::kDim : Ink::kPlain) << "\n";
  }
  std::cout << Rule(kWidth, "┬") << "\n";
  const TwoColumns names = {.left = {{"speculation off"}}, .right = {{"speculation on"}}, .width = kWidth};
  std::cout << ToLines(names).front() << "\n" << Rule(kWidth, "┼") << "\n" << std::flush;
}

void PrintFooter(const Pair& pair) {
  const std::string off = absl::StrCat(pair.off.num_tokens(), " tokens in ", Duration(pair.off));
  const std::string on = absl::StrCat(pair.on.num_tokens(), " tokens in ", Duration(pair.on), ": ", pair.Verdict());
  std::cout << Rule(kWidth, "┼") << "\n";
  for (const std::string& line : ToLines({.left = {{off}}, .right = {{on}}, .width = kWidth}))
    std::cout << line << "\n";
  std::cout << std::flush;
}

// Sends the requests one after another, each with speculation off and on. The order changes from request to request.
class Comparer {
 public:
  struct Options {
    size_t num_shown;
    bool color;
  };
  Comparer(GenerationClient& client, Cancellation& cancellation, Options options)
      : client_(client), cancellation_(cancellation), options_(options) {}

  Comparison Compare(std::span<const GenerateRequest> requests) {
    // A server is slow at first, so the first request does not count. Its tenant keeps its outputs from helping others.
    GenerateRequest first = requests.front();
    first.set_tenant(first.tenant() + "/first");
    for (const bool on : {false, true}) Send(first, {.on = on}, nullptr);
    BothWays results;
    for (size_t i = 0; i < requests.size() && !cancellation_.cancelled(); ++i) {
      const std::string title = absl::StrCat("text ", i + 1, " of ", requests.size());
      Pair pair = i < options_.num_shown ? Show(requests[i], i, title) : SendBothWays(requests[i], i, nullptr);
      if (i >= options_.num_shown) {
        if (i == options_.num_shown) std::cout << "\n";
        std::cout << title << ": " << pair.on.num_tokens() << " tokens, off " << Duration(pair.off) << ", on "
                  << Duration(pair.on) << ": " << pair.Verdict() << std::endl;
      }
      if (pair.ratio() > 0) results.ratios.push_back(pair.ratio());
      Append(std::move(pair.off), results.off);
      Append(std::move(pair.on), results.on);
    }
    return Summarise(results);
  }

 private:
  struct Way {
    bool on = false;
    uint64_t default_seed = 0;
  };

  static void Append(Timed timed, LoadResult& result) {
    result.wall += timed.wall();
    result.generations.push_back(std::move(timed.generation));
  }

  Timed Send(const GenerateRequest& request, Way way, Panel* panel) {
    const GenerateRequest sent = OneWay(request, way.on, way.default_seed);
    return {GenerateTimed(
        client_, sent,
        [&](const GenerateResponse& response) { panel != nullptr ? panel->Append(way.on, response) : void(); },
        &cancellation_)};
  }

  Pair SendBothWays(const GenerateRequest& request, size_t index, Panel* panel) {
    Pair pair;
    for (const bool on : {index % 2 == 1, index % 2 == 0}) {
      (on ? pair.on : pair.off) = Send(request, {.on = on, .default_seed = index}, panel);
    }
    return pair;
  }

  Pair Show(const GenerateRequest& request, size_t index, absl::string_view title) {
    PrintHeader(title, request.text(), options_.color);
    Panel panel(options_.color);
    Pair pair = SendBothWays(request, index, &panel);
    panel.Finish();
    PrintFooter(pair);
    return pair;
  }

  GenerationClient& client_;
  Cancellation& cancellation_;
  const Options options_;
};

void PrintSummary(const Comparison& comparison) {
  const auto print = [](absl::string_view name, absl::string_view off, absl::string_view on) {
    std::cout << absl::StrFormat("%-28s%18s%18s\n", name, off, on);
  };
  const auto number = [](std::optional<double> value) { return value ? absl::StrFormat("%.2f", *value) : "-"; };
  std::cout << "\n";
  print("", "speculation off", "speculation on");
  print("tokens/s", number(comparison.off.tokens_per_s), number(comparison.on.tokens_per_s));
  print("tokens per step", number(comparison.off.tokens_per_step), number(comparison.on.tokens_per_step));
  for (const auto& [name, counts] : comparison.on.proposers) {
    print(absl::StrCat("guesses of ", name, " accepted"), "-",
          absl::StrCat(counts.accepted_tokens, " of ", counts.proposed_tokens));
  }
  std::cout << Verdict(comparison) << std::flush;
}

absl::Status CompareTexts(const std::vector<std::string>& arguments) {
  FT_ASSIGN_OR_RETURN(const bool color, ColorFromFlags());
  FT_ASSIGN_OR_RETURN(const GenerateRequest request, RequestFromFlags());
  if (!request.request_id().empty()) return absl::InvalidArgumentError("--request_id: compare sends many requests");
  if (request.sampling().n() > 1) return absl::InvalidArgumentError("--n: compare shows one sample of each prompt");
  FT_RETURN_IF_ERROR(CheckKeepsTokens(request));
  FT_RETURN_IF_ERROR(CheckSpeculates(request));
  FT_ASSIGN_OR_RETURN(const std::vector<std::string> prompts, PromptsFromFlags(arguments));
  std::vector<GenerateRequest> requests(prompts.size(), request);
  for (size_t i = 0; i < prompts.size(); ++i) requests[i].set_text(prompts[i]);
  Cancellation cancellation;
  const InterruptWatcher interrupt(cancellation);
  FT_ASSIGN_OR_RETURN(GenerationClient client, ConnectFromFlags({}, &cancellation));
  const size_t num_shown = absl::GetFlag(FLAGS_show).value_or(requests.size());
  Comparer comparer(client, cancellation, {.num_shown = num_shown, .color = color});
  const Comparison comparison = comparer.Compare(requests);
  PrintSummary(comparison);
  if (cancellation.cancelled()) return absl::CancelledError("interrupted");
  FT_RETURN_IF_ERROR(comparison.first_error);
  if (!comparison.AllEqual()) return absl::DataLossError("speculation changed the output");
  return absl::OkStatus();
}

}  // namespace

int RunCompare(const std::vector<std::string>& arguments) { return ExitCode(CompareTexts(arguments)); }

}  // namespace foretoken::client
