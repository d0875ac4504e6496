#pragma once
// What `fathom tune` has finished, so that --resume goes on behind it: a line of JSON for each shape, beside the files.
//
//   Journal journal(out + "/progress-gemm.jsonl", /*resumes=*/true);
//   if (const auto done = journal.find<tuned::MatrixChoices>(file, rows)) ...;     // its entries
//   journal.add(choices, rows);
//
// Throws StartupError where a line is none of these, or the file cannot be written. One thread.

#include <optional>
#include <string>
#include <vector>

#include "tuned/table.h"

namespace fathom::apps {

class Journal {
 public:
  // Without `resumes` what there is of another run goes away.
  Journal(std::string path, bool resumes);

  // The entries of a shape that was finished with at least these numbers of rows.
  template <class Choices>
  std::optional<Choices> find(const std::string& file_name, const std::vector<int64_t>& rows) const;
  void add(const tuned::MatrixChoices& choices, const std::vector<int64_t>& rows);
  void add(const tuned::ExpertChoices& choices, const std::vector<int64_t>& rows);
  size_t size() const { return lines_.size(); }

 private:
  struct Line {
    std::string file_name, text;
    std::vector<int64_t> rows;
  };
  void read();
  void append(Line line);

  std::string path_;
  std::vector<Line> lines_;
};

}  // namespace fathom::apps
