// A task to fine-tune on: which module of the course does a paragraph come from?
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "formats/sentences.h"

namespace aisc {

struct Paragraph {
  std::string text;    // words with a space between them, without anything that has a digit
  std::string source;  // as the handout has it, line breaks included
  std::int32_t label = 0;
};

// A paragraph has so many words, or more.
inline constexpr std::int64_t kLeastParagraphWords = 30;

// The paragraphs of a text in Markdown, in order, with a label of 0: of lines that follow one
// another, and of each item of a list. Left out are code between fences, headings, rows of tables,
// quotations, lines that begin with a tag of HTML, and what is shorter.
//
// A model that reads the answer learns nothing, and the answer is a number: "module 06", "exercise
// 06.1", "06_tensor_parallel/g.h". So of a link only its text stays, and what has a digit between
// two spaces is no word here, whichever digits they are. Of "See [the ring](../09_x/README.md) of
// 09.2, with 8 ranks" stays "See the ring of with ranks".
std::vector<Paragraph> split_paragraphs(std::string_view handout);

// Is a paragraph of this text held out? One in five is, and which one depends on its text alone:
// what else the course says does not change it.
bool is_held_out(std::string_view paragraph);

struct ParagraphParts {
  std::vector<std::string> modules;  // by label: "01_mutex_mae", ...
  std::vector<Paragraph> training, held_out;
};
// Of the handouts NN_*/README.md and NN_*/more.md in a folder. Modules without a paragraph have no
// label. A text that stands there more than once is in neither part. Throws Error: there are no two
// modules with paragraphs, or a file cannot be read.
ParagraphParts course_paragraphs(const std::string& folder);

// These documents without the sentences of these paragraphs, at which stretches end: what to
// pre-train on, so that no text that is held out was ever seen.
std::vector<Document> without_paragraphs(std::span<const Document> documents,
                                         std::span<const Paragraph> paragraphs);

}  // namespace aisc
