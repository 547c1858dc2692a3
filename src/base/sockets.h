// Stream sockets for the control planes of tools: listening and connecting with clear errors, and messages as
// a 32-bit length and so many bytes. Small and slow is fine; nothing here is on a hot path. Every wait has a
// deadline.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/status.h"
#include "base/unique_fd.h"

namespace sluice {

// Port 0 takes any free one; port_of() tells which. An error names the address and the port.
Result<UniqueFd> listen_tcp(const std::string& host, uint16_t port);
Result<uint16_t> port_of(const UniqueFd& listener);
// Tries again while nobody listens there yet.
Result<UniqueFd> connect_tcp(const std::string& host, uint16_t port, Deadline deadline);

Result<UniqueFd> listen_unix(const std::string& path);
Result<UniqueFd> connect_unix(const std::string& path, Deadline deadline);

// deadline_exceeded when nobody came.
Result<UniqueFd> accept_connection(const UniqueFd& listener, Deadline deadline);

// unavailable when the other side has closed; data_loss when it announces more than `most` bytes.
Status send_frame(int fd, std::string_view bytes, Deadline deadline);
Result<std::string> receive_frame(int fd, size_t most, Deadline deadline);

}  // namespace sluice
