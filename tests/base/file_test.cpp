#include "base/file.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <utility>

namespace reprise::file_test {
namespace {

namespace fs = std::filesystem;

class File : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / fmt::format("reprise_file_test_{}", ::getpid());
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }
  std::string path(const std::string& name) const { return (folder_ / name).string(); }

  fs::path folder_;
};

TEST_F(File, WritesAndReadsBack) {
  const std::string bytes("a\0b\n\xff", 5);
  ASSERT_TRUE(write_file_atomically(path("x"), bytes).is_ok());
  EXPECT_EQ(*read_file(path("x")), bytes);
  ASSERT_TRUE(write_file_atomically(path("x"), "").is_ok());
  EXPECT_EQ(*read_file(path("x")), "");
}

TEST_F(File, LeavesNoTemporaryBehind) {
  ASSERT_TRUE(write_file_atomically(path("x"), "1").is_ok());
  fs::create_directory(path("folder"));
  EXPECT_FALSE(write_file_atomically(path("folder"), "1").is_ok());  // a file cannot replace a folder
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()), 2);
}

TEST_F(File, ErrorsNameThePathAndTheReason) {
  const auto missing = read_file(path("none"));
  ASSERT_FALSE(missing.is_ok());
  EXPECT_EQ(missing.status().code(), Code::NotFound);
  EXPECT_EQ(missing.status().message(), path("none") + ": No such file or directory");
  const auto folder = read_file(folder_.string());
  ASSERT_FALSE(folder.is_ok());
  EXPECT_EQ(folder.status().message(), folder_.string() + ": not a regular file");
  EXPECT_FALSE(MappedFile::open(path("none")).is_ok());
  EXPECT_FALSE(MappedFile::open(folder_.string()).is_ok());
  EXPECT_FALSE(write_file_atomically(path("none/x"), "1").is_ok());
}

TEST_F(File, ReadLimit) {
  ASSERT_TRUE(write_file_atomically(path("x"), "12345").is_ok());
  EXPECT_TRUE(read_file(path("x"), 5).is_ok());
  const auto r = read_file(path("x"), 4);
  ASSERT_FALSE(r.is_ok());
  EXPECT_EQ(r.status().message(), path("x") + ": 5 bytes, more than the allowed 4");
}

TEST_F(File, MapsTheSameBytes) {
  std::string bytes(100000, '\0');
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i * 7);
  ASSERT_TRUE(write_file_atomically(path("x"), bytes).is_ok());
  auto opened = MappedFile::open(path("x"));
  ASSERT_TRUE(opened.is_ok());
  MappedFile file = std::move(opened).value();
  const auto same = [&] {
    const auto b = file.bytes();
    return std::string_view(reinterpret_cast<const char*>(b.data()), b.size()) == bytes;
  };
  EXPECT_EQ(file.path(), path("x"));
  EXPECT_TRUE(same());
  file.release(1, 50000);  // released pages come back from the file
  file.release(99999, 1000000);
  file.release(200000, 1);
  EXPECT_TRUE(same());
}

TEST_F(File, MappingMoves) {
  ASSERT_TRUE(write_file_atomically(path("x"), "xxx").is_ok());
  ASSERT_TRUE(write_file_atomically(path("y"), "yy").is_ok());
  MappedFile a = MappedFile::open(path("x")).value();
  MappedFile b = std::move(a);
  EXPECT_EQ(b.bytes().size(), 3u);
  b = MappedFile::open(path("y")).value();
  EXPECT_EQ(b.bytes().size(), 2u);
  EXPECT_EQ(b.bytes()[0], 'y');
}

TEST_F(File, MapsAnEmptyFile) {
  ASSERT_TRUE(write_file_atomically(path("x"), "").is_ok());
  auto file = MappedFile::open(path("x"));
  ASSERT_TRUE(file.is_ok());
  EXPECT_TRUE(file->bytes().empty());
  file->release(0, 10);
}

}  // namespace
}  // namespace reprise::file_test
