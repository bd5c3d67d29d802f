// The files of a prompt's pictures and video, in the order in which a model sees them.
#include "api/prompt_media.h"

#include <gtest/gtest.h>

#include "support/folder.h"

namespace reprise::api::prompt_media_test {
namespace {

using testing_support::Folder;
using Words = std::vector<std::string>;

TEST(PromptMedia, FramesOfAFolderComeByTheNumbersInTheirNames) {
  const Folder folder;
  for (const char* name : {"f10.png", "f2.png", "f002.png", "f1.png", "e3.png", ".hidden"}) folder.write(name, "x");
  Words want;
  for (const char* name : {"e3.png", "f1.png", "f002.png", "f2.png", "f10.png"}) want.push_back(folder / name);
  const auto frames = frame_files({folder.path()}, "--video");
  ASSERT_TRUE(frames.is_ok()) << frames.status().message();
  EXPECT_EQ(*frames, want);
  const Words named{folder / "f10.png", folder / "f1.png"};
  EXPECT_EQ(*frame_files(named, "--video"), named) << "as they were given";
  EXPECT_EQ(*frame_files({"no/such/file.png"}, "--video"), Words{"no/such/file.png"}) << "it is missed when it is read";
  const Folder empty;
  EXPECT_EQ(frame_files({empty.path()}, "--video").status().message(),
            "--video " + empty.path() + ": no files; allowed: a folder of pictures, or their names");
}

TEST(PromptMedia, AMessageShowsPicturesThenTheVideoThenTheText) {
  MediaFiles files;
  EXPECT_FALSE(files.any());
  EXPECT_EQ(files.content("text"), "text");
  files.images = {"a", "b"};
  files.video = {"c"};
  EXPECT_TRUE(files.any());
  const OrderedJson want = OrderedJson::parse(
      R"([{"type": "image"}, {"type": "image"}, {"type": "video"}, {"type": "text", "text": "text"}])");
  EXPECT_EQ(files.content("text"), want);
}

}  // namespace
}  // namespace reprise::api::prompt_media_test
