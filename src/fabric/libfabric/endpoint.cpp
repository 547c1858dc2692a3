#include "fabric/libfabric/endpoint.h"

#include <fmt/core.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>

#include <random>

namespace sluice::fabric::ofi {

namespace {

Status failed(std::string_view call, long code) {
  const Code kind = code == -FI_ENOMEM || code == -FI_EMFILE ? Code::resource_exhausted : Code::unavailable;
  return {kind, fmt::format("{}: {}", call, error_text(code))};
}

// Keys that no earlier epoch of any process used: a random start, and counted up.
uint64_t first_key(size_t key_bytes) {
  std::random_device random;
  const uint64_t any = static_cast<uint64_t>(random()) << 32 | random();
  const uint64_t most = key_bytes >= 8 ? ~uint64_t{0} : (uint64_t{1} << (8 * key_bytes)) - 1;
  return any & most >> 1;
}

}  // namespace

Result<Endpoint> Endpoint::open(Info info, size_t completions) {
  Endpoint made;
  made.info_ = std::move(info);
  fi_info* it = made.info_.get();
  if (it->domain_attr->cq_data_size < sizeof(uint32_t)) {
    return unavailable(fmt::format("provider {} carries {} bytes with a write; the immediate needs {}",
                                   made.provider(), it->domain_attr->cq_data_size, sizeof(uint32_t)));
  }
  if (int code = fi_fabric(it->fabric_attr, made.fabric_.out(), nullptr); code != 0) {
    return failed("fi_fabric", code);
  }
  if (int code = fi_domain(made.fabric_.get(), it, made.domain_.out(), nullptr); code != 0) {
    return failed("fi_domain", code);
  }
  SLUICE_RETURN_IF_ERROR(made.open_queue(completions));
  fi_av_attr av_attr{};
  av_attr.type = it->domain_attr->av_type;
  if (int code = fi_av_open(made.domain_.get(), &av_attr, made.av_.out(), nullptr); code != 0) {
    return failed("fi_av_open", code);
  }
  if (int code = fi_endpoint(made.domain_.get(), it, made.ep_.out(), nullptr); code != 0) {
    return failed("fi_endpoint", code);
  }
  if (int code = fi_ep_bind(made.ep_.get(), &made.av_.get()->fid, 0); code != 0) {
    return failed("fi_ep_bind of the address vector", code);
  }
  if (int code = fi_ep_bind(made.ep_.get(), &made.cq_.get()->fid, FI_TRANSMIT | FI_RECV); code != 0) {
    return failed("fi_ep_bind of the completion queue", code);
  }
  if (int code = fi_enable(made.ep_.get()); code != 0) return failed("fi_enable", code);
  made.next_key_ = first_key(it->domain_attr->mr_key_size);
  return made;
}

Status Endpoint::open_queue(size_t completions) {
  fi_cq_attr attr{};
  attr.size = completions;
  attr.format = FI_CQ_FORMAT_DATA;
  attr.wait_obj = FI_WAIT_FD;
  int code = fi_cq_open(domain_.get(), &attr, cq_.out(), nullptr);
  if (code == 0) {
    if (fi_control(&cq_.get()->fid, FI_GETWAIT, &wait_fd_) != 0) wait_fd_ = -1;
    return {};
  }
  attr.wait_obj = FI_WAIT_NONE;
  code = fi_cq_open(domain_.get(), &attr, cq_.out(), nullptr);
  if (code == 0) return {};
  return failed(fmt::format("fi_cq_open for {} completions", completions), code);
}

Result<std::string> Endpoint::name() const {
  std::string name(512, '\0');
  size_t length = name.size();
  if (int code = fi_getname(&ep_.get()->fid, name.data(), &length); code != 0)
    return failed("fi_getname", code);
  name.resize(length);
  return name;
}

Result<Region> Endpoint::register_memory(std::span<std::byte> memory, bool remote) {
  const int mode = info_->domain_attr->mr_mode;
  Region region;
  const uint64_t wanted_key = (mode & FI_MR_PROV_KEY) != 0 ? 0 : next_key_++;
  const uint64_t access = remote ? FI_REMOTE_WRITE : FI_WRITE;
  if (int code = fi_mr_reg(domain_.get(), memory.data(), memory.size(), access, 0, wanted_key, 0,
                           region.mr.out(), nullptr);
      code != 0) {
    return failed(fmt::format("registering {} bytes (is the locked-memory limit, ulimit -l, high enough?)",
                              memory.size()),
                  code);
  }
  region.descriptor = fi_mr_desc(region.mr.get());
  region.remote.key = fi_mr_key(region.mr.get());
  region.remote.base = (mode & FI_MR_VIRT_ADDR) != 0 ? reinterpret_cast<uint64_t>(memory.data()) : 0;
  return region;
}

Result<std::vector<fi_addr_t>> Endpoint::insert(std::span<const std::string> names) {
  std::vector<fi_addr_t> addresses;
  addresses.reserve(names.size());
  for (size_t rank = 0; rank < names.size(); ++rank) {
    fi_addr_t address = FI_ADDR_UNSPEC;
    const int code = fi_av_insert(av_.get(), names[rank].data(), 1, &address, 0, nullptr);
    if (code != 1)
      return failed(fmt::format("the address of rank {} was not accepted: fi_av_insert", rank), code);
    addresses.push_back(address);
  }
  return addresses;
}

ssize_t Endpoint::write(const Write& write) {
  iovec local{const_cast<std::byte*>(write.source), write.length};
  void* descriptor = write.descriptor;
  const fi_rma_iov remote{.addr = write.address, .len = write.length, .key = write.key};
  const fi_msg_rma message{.msg_iov = &local,
                           .desc = &descriptor,
                           .iov_count = 1,
                           .addr = write.peer,
                           .rma_iov = &remote,
                           .rma_iov_count = 1,
                           .context = write.context,
                           .data = write.immediate};
  return fi_writemsg(ep_.get(), &message, FI_REMOTE_CQ_DATA | FI_COMPLETION);
}

ssize_t Endpoint::poll(std::span<fi_cq_data_entry> entries) {
  const ssize_t got = fi_cq_read(cq_.get(), entries.data(), entries.size());
  return got == -FI_EAGAIN ? 0 : got;
}

bool Endpoint::read_error(fi_cq_err_entry& entry) {
  entry = {};
  return fi_cq_readerr(cq_.get(), &entry, 0) == 1;
}

bool Endpoint::may_sleep() {
  fid* waits[] = {&cq_.get()->fid};
  return wait_fd_ >= 0 && fi_trywait(fabric_.get(), waits, 1) == FI_SUCCESS;
}

}  // namespace sluice::fabric::ofi
