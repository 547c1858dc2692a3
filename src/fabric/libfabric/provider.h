// Choosing the libfabric provider that was asked for, exactly that one, or failing with what there is
// instead.
#pragma once

#include <rdma/fabric.h>

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace sluice::fabric::ofi {

struct InfoDeleter {
  void operator()(fi_info* info) const { fi_freeinfo(info); }
};
using Info = std::unique_ptr<fi_info, InfoDeleter>;

// What a name of ours means to libfabric: the provider's name and, where that is not enough, the fabric's.
struct Wanted {
  std::string_view provider;
  std::string_view fabric;  // empty: any
};
// In order of preference for the library's version (FI_VERSION numbers); empty for a name that is not ours.
std::vector<Wanted> wanted(std::string_view name, uint32_t library_version);

// Whether `info` is what was wanted, by its own names.
bool matches(const fi_info& info, const Wanted& wanted);

// `address` is the interface to use; empty lets the provider choose.
Result<Info> choose(std::string_view name, const std::string& address);

// The providers that can make reliable datagram endpoints here, each once, in libfabric's order.
std::vector<std::string> available();

// "libfabric 1.17.0"
std::string library_version();

// "No data available (-61)"
std::string error_text(long code);

}  // namespace sluice::fabric::ofi
