// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu_quota.h"

#include <algorithm>
#include <fstream>

namespace foretoken::kernels {
namespace {

std::optional<double> ReadQuota(const std::string& group) {
  std::ifstream file(group + "/cpu.max");
  double quota = 0, period = 0;
  if (!(file >> quota >> period) || quota <= 0 || period <= 0) return std::nullopt;  // "max" is no number
  return quota / period;
}

// The process's group, as a path below the mount point: the line "0::PATH".
std::string GroupOfProcess(const std::string& root) {
  std::ifstream groups(root + "/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    if (line.starts_with("0::/")) return line.substr(3);
  }
  return "/";
}

}  // namespace

std::optional<double> CpuQuota(const std::string& root) {
  std::optional<double> least;
  for (std::string group = GroupOfProcess(root);; group.resize(group.rfind('/'))) {
    const std::optional<double> quota = ReadQuota(root + "/sys/fs/cgroup" + group);
    if (quota) least = std::min(least.value_or(*quota), *quota);
    if (group.empty()) return least;
  }
}

}  // namespace foretoken::kernels
