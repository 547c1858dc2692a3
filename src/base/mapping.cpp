#include "base/mapping.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cstdio>

namespace sluice {

Mapping& Mapping::operator=(Mapping&& other) noexcept {
  if (this != &other) {
    if (address_ != nullptr) munmap(address_, bytes_);
    address_ = std::exchange(other.address_, nullptr);
    bytes_ = std::exchange(other.bytes_, 0);
  }
  return *this;
}

Mapping::~Mapping() {
  if (address_ != nullptr) munmap(address_, bytes_);
}

Result<Mapping> Mapping::read_file(const std::string& path) {
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) return errno_status(Code::not_found, path);
  struct stat info {};
  if (fstat(fd.get(), &info) != 0) return errno_status(Code::not_found, path);
  if (!S_ISREG(info.st_mode)) return invalid_argument(path + ": not a regular file");
  if (info.st_size == 0) return data_loss(path + ": the file is empty");
  const auto bytes = static_cast<size_t>(info.st_size);
  void* address = mmap(nullptr, bytes, PROT_READ, MAP_SHARED, fd.get(), 0);
  if (address == MAP_FAILED) return errno_status(Code::resource_exhausted, path + ": mmap");
  return Mapping(address, bytes);
}

Result<SharedMemory> SharedMemory::create(const std::string& name, size_t bytes) {
  SharedMemory made;
  made.fd_ = UniqueFd(memfd_create(name.c_str(), MFD_CLOEXEC));
  if (!made.fd_) return errno_status(Code::resource_exhausted, "memfd_create '" + name + "'");
  if (ftruncate(made.fd_.get(), static_cast<off_t>(bytes)) != 0) {
    return errno_status(Code::resource_exhausted, fmt::format("shared memory '{}' of {} bytes", name, bytes));
  }
  void* address = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, made.fd_.get(), 0);
  if (address == MAP_FAILED) {
    return errno_status(Code::resource_exhausted,
                        fmt::format("mapping shared memory '{}' of {} bytes", name, bytes));
  }
  made.mapping_ = Mapping(address, bytes);
  return made;
}

std::string SharedMemory::handle() const {
  return fmt::format("{}:{}:{}", getpid(), fd_.get(), mapping_.size());
}

Result<SharedMemory> SharedMemory::open(const std::string& handle) {
  int pid = 0;
  int fd = 0;
  unsigned long long bytes = 0;
  if (std::sscanf(handle.c_str(), "%d:%d:%llu", &pid, &fd, &bytes) != 3 || bytes == 0) {
    return invalid_argument("shared memory handle '" + handle + "' is not pid:descriptor:bytes");
  }
  const std::string path = fmt::format("/proc/{}/fd/{}", pid, fd);
  SharedMemory opened;
  opened.fd_ = UniqueFd(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  if (!opened.fd_) return errno_status(Code::unavailable, "shared memory of process " + handle);
  struct stat info {};
  if (fstat(opened.fd_.get(), &info) != 0) return errno_status(Code::unavailable, path);
  if (static_cast<unsigned long long>(info.st_size) != bytes) {
    return data_loss(fmt::format("{} holds {} bytes, its handle says {}", path, info.st_size, bytes));
  }
  void* address = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, opened.fd_.get(), 0);
  if (address == MAP_FAILED) return errno_status(Code::resource_exhausted, "mapping " + path);
  opened.mapping_ = Mapping(address, bytes);
  return opened;
}

}  // namespace sluice
