// Texts as sentences, of which BERT's pairs are made.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/core/range.h"
#include "common/data/corpus.h"

namespace aisc {

// The sentences of a text in Markdown or without any marks, in order; views of it, line breaks
// included. A sentence ends with . ! or ?, behind which quotes and brackets may close, where a
// capital letter follows after a space, or the line ends. It ends as well before an empty line, an
// item of a list, a heading, a row of a table; each of the last two is a sentence of its own, and
// the marks before its first word are no part of it. Left out are code between fences, lines that
// begin with a tag of HTML, and what has neither letter nor digit.
std::vector<std::string_view> split_sentences(std::string_view text);

// Sentences that follow one another.
using Stretch = std::vector<std::string>;
// What a corpus consists of, a file each. Where something of a file is in the other part, one
// stretch ends and another begins: sentences on both sides do not follow one another.
using Document = std::vector<Stretch>;

struct DocumentParts {
  std::vector<Document> training, held_out;
};
// A corpus's files as sentences, without the line of its path, in the two parts that the corpus
// has. A sentence that lies in both is in none.
DocumentParts documents_of(const Corpus& corpus);

// Sentences in tokens, numbered through all documents.
class Documents {
 public:
  using Encode = std::function<std::vector<std::int32_t>(std::string_view)>;

  // Sentences without a token are left out, and so are stretches of one sentence, which make no
  // pair. Throws Error: there are fewer than two documents with two sentences that follow one
  // another.
  Documents(std::span<const Document> documents, const Encode& encode);

  std::int64_t count() const { return std::ssize(first_stretch_) - 1; }    // documents
  std::int64_t sentences() const { return std::ssize(first_token_) - 1; }  // in all of them
  std::int32_t largest_token() const { return largest_token_; }
  // The tokens of these sentences, which are of one stretch. Views live as long as this object.
  std::span<const std::int32_t> tokens(const Range& sentences) const;
  std::int64_t token_count(const Range& sentences) const;
  Range stretch(std::int64_t sentence) const;  // the sentences of the stretch that it is in

  // Neighbours are two sentences that follow one another. How many there are; the first sentence of
  // those with number i.
  std::int64_t neighbours() const { return first_neighbours_.back(); }
  std::int64_t neighbour(std::int64_t i) const;
  // The same, only of documents in which this sentence is not.
  std::int64_t neighbours_elsewhere(std::int64_t sentence) const;
  std::int64_t neighbour_elsewhere(std::int64_t sentence, std::int64_t i) const;

 private:
  std::int64_t stretch_of(std::int64_t sentence) const;
  Range neighbours_of_document(std::int64_t sentence) const;

  std::vector<std::int32_t> tokens_;
  // Of each sentence, stretch, document, and one more: where it begins.
  std::vector<std::int64_t> first_token_{0}, first_sentence_{0}, first_stretch_{0};
  std::vector<std::int64_t> first_neighbours_;  // of each stretch and one more
  std::int32_t largest_token_ = -1;
};

}  // namespace aisc
