// SPDX-License-Identifier: Apache-2.0
// costly_target SOURCE DIRECTORY GIGABYTES: writes a checkpoint with the outputs of SOURCE into an existing directory.
// A step of it reads this many gigabytes. For `./dev demo`; serving/costly_target.h describes the method.
#include "tests/bench/serving/costly_target.h"

#include <cstdio>
#include <string>

#include "absl/strings/numbers.h"

int main(int argc, char** argv) {
  double gigabytes = 0;
  if (argc != 4 || !absl::SimpleAtod(argv[3], &gigabytes) || !(gigabytes > 0 && gigabytes <= 1000)) {
    std::fputs("usage: costly_target SOURCE DIRECTORY GIGABYTES\n", stderr);
    return 2;
  }
  const absl::Status status = foretoken::bench::WriteCostlyTarget(
      {.source = argv[1], .directory = argv[2], .num_bytes = static_cast<int64_t>(1e9 * gigabytes)});
  if (!status.ok()) std::fprintf(stderr, "costly_target: %s\n", std::string(status.message()).c_str());
  return status.ok() ? 0 : 1;
}
