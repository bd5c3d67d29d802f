// Content hashes: a hash of every byte of some files, with a memo that saves reading files which cannot have changed.
//
// The memo is one small JSON file. It holds each file's hash next to what the file system said of it: device, inode,
// size, time of the last change of the bytes, and time of the last change of the inode. No program can set that last
// time, so bytes replaced under the same size and time are read again. A file that changed within two seconds before
// it was read is not remembered, as a later change may carry the same times. A memo that is missing, unreadable or
// wrong costs a read and is replaced. Plain functions; several processes may use one memo.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"

namespace reprise::weights {

struct ContentHashes {
  std::vector<std::string> hashes;  // 32 hexadecimal digits a file, in the order asked
  uint64_t bytes_read = 0;          // 0 when the memo held all of them
};

// The path of an unreadable file, or of one that changes while it is read, stands in the error. `memo` may be "".
Result<ContentHashes> hash_contents(std::span<const std::string> files, const std::string& memo, int threads);

}  // namespace reprise::weights
