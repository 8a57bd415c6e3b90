// SPDX-License-Identifier: Apache-2.0
// foretoken quantize: writes a checkpoint again with 4-bit or 8-bit integers, once, for every later start.
#include <algorithm>
#include <csignal>
#include <iostream>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/commands/commands.h"
#include "client/commands/interrupt.h"
#include "client/offline/quantize_checkpoint.h"
#include "common/base/status_macros.h"

ABSL_FLAG(int32_t, bits, 4, "Bits of a weight of the layers: 4 or 8");
ABSL_FLAG(int32_t, head_bits, 0, "Bits of a weight of the head, if it is not the embedding: 4 or 8; 0: as it is");
ABSL_FLAG(int32_t, group_size, 32, "Inputs that share a scale: 32, 64 or 128");

namespace foretoken::client {
namespace {

absl::Status BadFlag(absl::string_view flag, absl::string_view expected, int32_t got) {
  return absl::InvalidArgumentError(absl::StrCat("--", flag, ": expected ", expected, ", got ", got));
}

absl::StatusOr<QuantizeOptions> OptionsFromFlags(const std::vector<std::string>& arguments) {
  if (arguments.size() != 2) {
    return absl::InvalidArgumentError("expected two arguments: a checkpoint's directory, and the directory to write");
  }
  const int32_t bits = absl::GetFlag(FLAGS_bits), head_bits = absl::GetFlag(FLAGS_head_bits);
  const int32_t group_size = absl::GetFlag(FLAGS_group_size);
  if (bits != 4 && bits != 8) return BadFlag("bits", "4 or 8", bits);
  if (head_bits != 0 && head_bits != 4 && head_bits != 8) return BadFlag("head_bits", "0, 4 or 8", head_bits);
  if (group_size != 32 && group_size != 64 && group_size != 128) {
    return BadFlag("group_size", "32, 64 or 128", group_size);
  }
  return QuantizeOptions{
      .input = arguments[0], .output = arguments[1], .bits = bits, .group_size = group_size, .head_bits = head_bits};
}

absl::Status Quantize(const std::vector<std::string>& arguments) {
  FT_ASSIGN_OR_RETURN(QuantizeOptions options, OptionsFromFlags(arguments));
  Cancellation cancellation;
  // The end after a signal removes the files, and may take long.
  const InterruptWatcher interrupt(cancellation, /*patience=*/absl::InfiniteDuration());
  // A pipe without a reader and a limit for the size of files are errors in writing, and end nothing before its files
  // are removed.
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
  options.cancellation = &cancellation;
  int64_t shown_percent = -1;
  const auto progress = [&](int64_t num_bytes_done, int64_t num_bytes) {
    const int64_t percent = 100 * num_bytes_done / std::max<int64_t>(1, num_bytes);
    if (percent / 10 == shown_percent / 10 && shown_percent >= 0) return;
    shown_percent = percent;
    std::cerr << percent << " % of " << absl::StrFormat("%.2f", static_cast<double>(num_bytes) / 1e9) << " GB"
              << std::endl;
  };
  FT_ASSIGN_OR_RETURN(const QuantizedSize size, QuantizeCheckpoint(options, progress));
  std::cout << options.output << ": " << size.num_matrices << " matrices of " << options.bits
            << absl::StrFormat(" bits, %.2f MB in place of %.2f MB\n", static_cast<double>(size.num_bytes_after) / 1e6,
                               static_cast<double>(size.num_bytes_before) / 1e6);
  return absl::OkStatus();
}

}  // namespace

int RunQuantize(const std::vector<std::string>& arguments) { return ExitCode(Quantize(arguments)); }

}  // namespace foretoken::client
