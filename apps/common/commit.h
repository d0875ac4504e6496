#pragma once
// The commit that this program was built from, written beside what it measures: "4f2c91d03ab7", the same "with changes"
// where files of it had been edited, or "unknown" outside its repository (cmake/FathomCommit.cmake).

namespace fathom::apps {

const char* built_from();

}  // namespace fathom::apps
