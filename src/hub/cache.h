// HubCache: a hub's models on disk, in the layout of that hub's own tools, so that they find what is fetched here and
// the other way round. It knows paths and touches nothing but what its methods say. A plain value, any thread; several
// processes may use one folder (download.h locks).
//
//   huggingface_hub   models--org--name/{blobs/ETAG, blobs/ETAG.incomplete, refs/main, snapshots/COMMIT/file -> blob}
//                     .locks/models--org--name/ETAG.lock
//   modelscope_hub    models/org--name/snapshots/REVISION/{file, file.incomplete}, .lock/
//                     and what its older versions left: [hub/]models/org/name, '.' as "___"
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "hub/choice.h"
#include "hub/model_name.h"
#include "hub/settings.h"

namespace reprise::hub {

// A revision of a repository on disk.
struct Snapshot {
  std::string folder;
  std::string commit;  // "" where the layout has none
};

// What lies in a snapshot; links whose file is gone are in `broken`.
struct SnapshotFiles {
  Listing listing;
  std::vector<std::string> broken;
};

// The model that a snapshot holds.
struct KeptModel {
  std::string path;     // of the folder or the GGUF file
  uint64_t bytes = 0;   // of its files
  std::string by_rule;  // as in Choice
  std::string missing;  // why it is incomplete; "": it is whole
};

// Where a file goes.
struct Place {
  std::string file;     // the bytes
  std::string partial;  // while they arrive
  std::string link;     // points to `file`; "": there is none
  std::string lock;
};

class HubCache {
 public:
  HubCache(HubKind kind, std::string folder) : kind_(kind), folder_(std::move(folder)) {}
  const std::string& folder() const { return folder_; }
  HubKind kind() const { return kind_; }

  // The snapshot of that revision, or of the default one; none when nothing says which it is, or it is not there.
  std::optional<Snapshot> find(const ModelName& name) const;
  // Where a revision is to lie, whether it does or not.
  Snapshot snapshot(const ModelName& name, const std::string& commit) const;
  Place place(const ModelName& name, const Snapshot& snapshot, const RepoFile& file) const;
  // Afterwards `revision` leads to the commit. Nothing to do for ModelScope.
  Status write_ref(const ModelName& name, const std::string& commit) const;

  // Every model repository and revision of it that lies here, whole or not: names as a user would give them.
  struct Entry {
    ModelName name;
    Snapshot snapshot;
    uint64_t partial_bytes = 0;  // of files that have not arrived wholly; in the first entry of a repository
  };
  std::vector<Entry> entries() const;

 private:
  std::string repo_folder(const std::string& repo) const;
  std::vector<Entry> hugging_face_entries() const;
  std::vector<Entry> modelscope_entries() const;

  HubKind kind_;
  std::string folder_;
};

SnapshotFiles files_of(const Snapshot& snapshot);
// What `file` (as in ModelName) stands for there. A kept listing of the commit decides what has to be there, else what
// the files say of each other. An error when there is no such model in it.
Result<KeptModel> kept_model(const Snapshot& snapshot, const std::string& file, std::string_view where);

}  // namespace reprise::hub
