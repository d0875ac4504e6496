#pragma once
// The answer of /v1/score: {"scores": [[...], ...], "model", "usage", "object"}. Made by make_renderer().

#include <memory>

#include "answer/renderer.h"

namespace fathom::answer {

std::unique_ptr<Renderer> make_score_renderer(api::ShownForm form);

}  // namespace fathom::answer
