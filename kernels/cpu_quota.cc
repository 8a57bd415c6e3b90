// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu_quota.h"

#include <algorithm>
#include <fstream>

#include "kernels/control_groups.h"

namespace foretoken::kernels {
namespace {

std::optional<double> ReadQuota(const std::string& group) {
  std::ifstream file(group + "/cpu.max");
  double quota = 0, period = 0;
  if (!(file >> quota >> period) || quota <= 0 || period <= 0) return std::nullopt;  // "max" is no number
  return quota / period;
}

}  // namespace

std::optional<double> CpuQuota(const std::string& root) {
  std::optional<double> least;
  for (const std::string& group : ControlGroups(root)) {
    const std::optional<double> quota = ReadQuota(group);
    if (quota) least = std::min(least.value_or(*quota), *quota);
  }
  return least;
}

}  // namespace foretoken::kernels
