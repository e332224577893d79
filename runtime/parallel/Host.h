//===- Host.h - the machine that a rank is on ----------------------------===//
#ifndef TCC_RUNTIME_PARALLEL_HOST_H
#define TCC_RUNTIME_PARALLEL_HOST_H

#include "support/Status.h"

#include <string>

namespace tcc::runtime {

class Descriptor;

/// The host's full name.
std::string hostName();

/// A text that is equal for exactly the processes that can reach each other's loopback address: the host's name, the
/// system's boot id, and the network name space.
std::string machineName();

/// True for "localhost" and numeric loopback addresses. Names are not looked up: the same name is often a loopback
/// address on its own machine and another one elsewhere.
bool isLoopback(const std::string &address);

/// Error: the process at the other end of a connection within this machine belongs to another user, or is not found.
Status requireOwnUser(const Descriptor &socket);

/// Raises this process's limit of open files if a rank of a job of `size` needs it. Error: the system's limit is too
/// low.
Status makeRoomForConnections(uint32_t size);

} // namespace tcc::runtime

#endif // TCC_RUNTIME_PARALLEL_HOST_H
