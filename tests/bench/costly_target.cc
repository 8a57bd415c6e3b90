// SPDX-License-Identifier: Apache-2.0
// costly_target SOURCE DIRECTORY GIGABYTES [EXPERTS]: writes a checkpoint with the outputs of SOURCE into an existing
// directory. A step of it reads this many gigabytes. EXPERTS is the number of experts in each layer; a token takes 8 of
// them. For `./dev demo`; serving/costly_target.h describes the method.
#include "tests/bench/serving/costly_target.h"

#include <cstdio>
#include <string>

#include "absl/strings/numbers.h"

int main(int argc, char** argv) {
  double gigabytes = 0;
  int num_experts = 0;
  const bool is_read =
      (argc == 4 || (argc == 5 && absl::SimpleAtoi(argv[4], &num_experts))) && absl::SimpleAtod(argv[3], &gigabytes);
  if (!is_read || !(gigabytes > 0 && gigabytes <= 1000) || num_experts < 0 || num_experts > 4096) {
    std::fputs("usage: costly_target SOURCE DIRECTORY GIGABYTES [EXPERTS]\n", stderr);
    return 2;
  }
  const absl::Status status = foretoken::bench::WriteCostlyTarget({.source = argv[1],
                                                                   .directory = argv[2],
                                                                   .num_bytes = static_cast<int64_t>(1e9 * gigabytes),
                                                                   .num_experts = num_experts});
  if (!status.ok()) std::fprintf(stderr, "costly_target: %s\n", std::string(status.message()).c_str());
  return status.ok() ? 0 : 1;
}
