#include "fabric/libfabric/provider.h"

#include <fmt/core.h>
#include <fmt/ranges.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>

#include <algorithm>
#include <cstring>

namespace sluice::fabric::ofi {

namespace {

constexpr uint32_t kApi = FI_VERSION(FI_MAJOR_VERSION, FI_MINOR_VERSION);

Info make_hints(const Wanted& wanted) {
  Info hints(fi_allocinfo());
  const bool efa = wanted.provider == "efa";
  hints->caps = FI_MSG | FI_RMA;
  if (efa) hints->caps |= FI_LOCAL_COMM | FI_REMOTE_COMM;
  hints->mode = FI_CONTEXT | FI_CONTEXT2;
  hints->ep_attr->type = FI_EP_RDM;
  hints->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
  hints->domain_attr->threading = FI_THREAD_DOMAIN;
  hints->domain_attr->av_type = efa ? FI_AV_TABLE : FI_AV_UNSPEC;
  hints->domain_attr->cq_data_size = sizeof(uint32_t);
  // strdup: fi_freeinfo() frees the names with free().
  hints->fabric_attr->prov_name = strdup(std::string(wanted.provider).c_str());
  if (!wanted.fabric.empty()) hints->fabric_attr->name = strdup(std::string(wanted.fabric).c_str());
  return hints;
}

std::string_view name_or_empty(const char* name) { return name == nullptr ? std::string_view() : name; }

}  // namespace

std::vector<Wanted> wanted(std::string_view name, uint32_t library_version) {
  if (name == "tcp") {
    // Before 1.18 "tcp" had connected endpoints only, and the datagram layer over it is part of the name.
    if (FI_VERSION_LT(library_version, FI_VERSION(1, 18))) return {{"tcp;ofi_rxm", {}}};
    return {{"tcp", {}}};
  }
  if (name == "efa") return {{"efa", "efa"}};
  if (name == "efa-direct") return {{"efa", "efa-direct"}};
  return {};
}

bool matches(const fi_info& info, const Wanted& wanted) {
  return info.fabric_attr != nullptr && name_or_empty(info.fabric_attr->prov_name) == wanted.provider &&
         (wanted.fabric.empty() || name_or_empty(info.fabric_attr->name) == wanted.fabric);
}

Result<Info> choose(std::string_view name, const std::string& address) {
  const auto choices = wanted(name, fi_version());
  int code = -FI_ENODATA;
  for (const Wanted& choice : choices) {
    fi_info* found = nullptr;
    const Info hints = make_hints(choice);
    code = fi_getinfo(kApi, address.empty() ? nullptr : address.c_str(), nullptr,
                      address.empty() ? 0 : FI_SOURCE, hints.get(), &found);
    if (code != 0) continue;
    for (Info list(found); list != nullptr;) {
      if (matches(*list, choice)) {
        fi_freeinfo(std::exchange(list->next, nullptr));
        return list;
      }
      Info rest(std::exchange(list->next, nullptr));
      list = std::move(rest);
    }
    code = -FI_ENODATA;
  }
  const auto have = available();
  const std::string where = address.empty() ? "" : fmt::format(" on address {}", address);
  return unavailable(
      fmt::format("fabric '{}' was asked for, but {} does not offer it here{}: {}. It offers: {}", name,
                  library_version(), where, error_text(code),
                  have.empty() ? "nothing" : fmt::format("{}", fmt::join(have, ", "))));
}

std::vector<std::string> available() {
  std::vector<std::string> names;
  Info hints(fi_allocinfo());
  hints->mode = ~uint64_t{0};
  hints->domain_attr->mode = ~uint64_t{0};
  hints->domain_attr->mr_mode = ~3;  // every bit but the two obsolete ones
  hints->ep_attr->type = FI_EP_RDM;
  fi_info* found = nullptr;
  if (fi_getinfo(kApi, nullptr, nullptr, 0, hints.get(), &found) != 0) return names;
  const Info list(found);
  for (const fi_info* info = list.get(); info != nullptr; info = info->next) {
    std::string name(name_or_empty(info->fabric_attr->prov_name));
    if (name == "efa" && name_or_empty(info->fabric_attr->name) == "efa-direct") name = "efa-direct";
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(std::move(name));
  }
  return names;
}

std::string library_version() {
  // fi_tostr() shares one buffer among threads; the number is enough.
  const uint32_t version = fi_version();
  return fmt::format("libfabric {}.{}", FI_MAJOR(version), FI_MINOR(version));
}

std::string error_text(long code) {
  const auto positive = static_cast<int>(code < 0 ? -code : code);
  return fmt::format("{} ({})", fi_strerror(positive), -positive);
}

}  // namespace sluice::fabric::ofi
