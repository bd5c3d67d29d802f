// Whether an address is one of the public Internet: not this machine, its networks, or a range that the registries of
// special-purpose addresses (RFC 6890 and its successors) hold back. Pure; any thread.
#pragma once

struct sockaddr;

namespace reprise::hub {

// `address` is AF_INET or AF_INET6. Addresses that hold one of the other kind (mapped, 6to4, Teredo, NAT64) are not
// public.
bool is_public_address(const sockaddr& address);

}  // namespace reprise::hub
