// image_fetch(): fetches images from the hosts that a server's settings name, for requests that give a URL. Each call
// is a connection of its own; any thread.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/status.h"

namespace reprise::api {

using ImageFetch = std::function<Result<std::string>(const std::string& url)>;

// `hosts`: "cdn.example" (https), "cdn.example:8443", "http://10.0.0.7:8000", divided by commas; null for none. An
// image of more than `most_bytes`, or one that takes longer than the bound of time, is an error.
Result<ImageFetch> image_fetch(const std::string& hosts, int64_t most_bytes);

}  // namespace reprise::api
