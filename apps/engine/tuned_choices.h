#pragma once
// Which kernels were tuned for the GPU here (tuned/table.h): what ships with the program, and on top of it what a
// directory has.
//
//   take_tuned_choices(flags, /*on_gpu=*/true);                        // choose_backend(), before there are streams
//   log(tuned_choices_text());                                         // "12 matrices, 4 experts (3 of tuned/)"
//
// Throws StartupError where a file of --tuned-dir is wrong or of another device. By one thread, like choose_backend().

#include <string>

#include "apps/flags/flags.h"

namespace fathom::apps {

void take_tuned_choices(const EngineFlags& flags, bool on_gpu);
// Of the table that is in use.
std::string tuned_choices_text();

}  // namespace fathom::apps
