// SPDX-License-Identifier: Apache-2.0
#include "kernels/control_groups.h"

#include <fstream>

namespace foretoken::kernels {
namespace {

// The process's group, as a path below the mount point: the line "0::PATH".
std::string GroupOfProcess(const std::string& root) {
  std::ifstream groups(root + "/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    if (line.starts_with("0::/")) return line.substr(3);
  }
  return "/";
}

}  // namespace

std::vector<std::string> ControlGroups(const std::string& root) {
  std::vector<std::string> folders;
  for (std::string group = GroupOfProcess(root);; group.resize(group.rfind('/'))) {
    folders.push_back(root + "/sys/fs/cgroup" + group);
    if (group.empty()) return folders;
  }
}

}  // namespace foretoken::kernels
