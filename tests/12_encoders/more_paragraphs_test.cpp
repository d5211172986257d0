// Paragraphs of the course with the module that they come from: the label is not in the text, and
// what is held out was never seen.
#include "12_encoders/more/paragraphs.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>

#include "12_encoders/more/paragraph_samples.h"
#include "common/core/range.h"
#include "common/core/system/files.h"
#include "common/data/corpus.h"
#include "tests/formats/some_documents.h"
#include "tests/support/error_says.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/tensors.h"

namespace aisc {
namespace {

// "a1 a2 ..." would have digits: "aa ab ac ..." of n words.
std::string distinct_words(char first, int n) {
  std::string text;
  for (int i = 0; i < n; ++i)
    text += fmt::format("{}{}{}{}", i == 0 ? "" : " ", first, static_cast<char>('a' + i / 26),
                        static_cast<char>('a' + i % 26));
  return text;
}

std::vector<std::string> texts_of(const std::vector<Paragraph>& paragraphs) {
  std::vector<std::string> texts;
  for (const Paragraph& paragraph : paragraphs) texts.push_back(paragraph.text);
  return texts;
}
using Texts = std::vector<std::string>;

TEST(ParagraphsGiven, HaveThirtyWordsOrMore) {
  const std::string thirty = distinct_words('a', 30), fewer = distinct_words('b', 29);
  EXPECT_EQ(texts_of(split_paragraphs(thirty + "\n\n" + fewer + "\n\n" + fewer + "\nmore\n")),
            (Texts{thirty, fewer + " more"}));
  EXPECT_EQ(texts_of(split_paragraphs(fewer + " 30")), Texts{}) << "a number is no word";
  EXPECT_EQ(texts_of(split_paragraphs("")), Texts{});
}

TEST(ParagraphsGiven, AreOfLinesThatFollowOneAnother) {
  const std::string a = distinct_words('a', 30), b = distinct_words('b', 40);
  for (const char* between : {"## A heading", "| a | row |", "> a quotation", "<details>", "",
                              "```\nint code = 1;\n\n# more\n```", "~~~\ncode\n~~~"})
    EXPECT_EQ(texts_of(split_paragraphs(fmt::format("{}\n{}\n{}\n", a, between, b))), (Texts{a, b}))
        << between;
  // A line that only looks like one of these goes on.
  for (const char* line : {"and", "-1", "*so*", "3.5", "a | b"}) {
    const std::vector<Paragraph> one = split_paragraphs(fmt::format("{}\n{}\n{}\n", a, line, b));
    EXPECT_EQ(one.size(), 1u) << line;
  }
}

TEST(ParagraphsGiven, AreItemsOfAList) {
  const std::string a = distinct_words('a', 30), b = distinct_words('b', 30);
  const auto of = [&](const std::string& mark) {
    return texts_of(split_paragraphs(fmt::format("{0} {1}\n  {2}\n{0} {2}\n{1}", mark, a, b)));
  };
  EXPECT_EQ(of("-"), (Texts{"- " + a + " " + b, "- " + b + " " + a}));
  EXPECT_EQ(of("12."), (Texts{a + " " + b, b + " " + a})) << "the mark has a digit";
}

// The label is a number.
TEST(ParagraphsGiven, SayNoNumber) {
  const std::string rest = " " + distinct_words('a', 30);
  const auto of = [&](const std::string& begin) {
    const std::string text = texts_of(split_paragraphs(begin + rest)).at(0);
    return text.substr(0, text.size() - rest.size());
  };
  EXPECT_EQ(of("See [the ring](../09_x/README.md) of 09.2, with 8 ranks"),
            "See the ring of with ranks");
  EXPECT_EQ(of("module [06](../06_tensor_parallel/README.md) says"), "module says");
  EXPECT_EQ(of("`06_tensor_parallel/g.h` and `f_and_g.h`"), "and `f_and_g.h`");
  EXPECT_EQ(of("x[i] is [not (a link)"), "x[i] is [not (a link)");
  EXPECT_EQ(of("[a link\nover lines](x) ends"), "a link over lines ends");
}

TEST(ParagraphsGiven, KeepWhatTheHandoutHas) {
  const std::string a = distinct_words('a', 20), b = distinct_words('b', 20);
  const std::string source = a + " [link](06) 7\n  " + b;
  const std::vector<Paragraph> one = split_paragraphs("# Heading\n" + source + "\n\n");
  EXPECT_EQ(one.at(0).source, source);
  EXPECT_EQ(one.at(0).text, a + " link " + b);
}

// Tests run in the course's folder.
const ParagraphParts& course() {
  static const ParagraphParts parts = course_paragraphs(".");
  return parts;
}

std::vector<Paragraph> all_of_course() {
  std::vector<Paragraph> all = course().training;
  all.insert(all.end(), course().held_out.begin(), course().held_out.end());
  return all;
}

TEST(CourseParagraphsGiven, AreOfAllModules) {
  EXPECT_GE(course().modules.size(), 11u);
  EXPECT_EQ(course().modules.at(0), "01_mutex_mae");
  EXPECT_TRUE(std::is_sorted(course().modules.begin(), course().modules.end()));
  for (const auto* part : {&course().training, &course().held_out}) {
    std::map<std::int32_t, int> of_label;
    for (const Paragraph& paragraph : *part) ++of_label[paragraph.label];
    EXPECT_EQ(of_label.size(), course().modules.size()) << "a module has no paragraph in a part";
    EXPECT_EQ(of_label.begin()->first, 0);
  }
  const auto all = static_cast<double>(all_of_course().size());
  EXPECT_GT(all, 600);
  EXPECT_NEAR(static_cast<double>(course().held_out.size()), all / 5, all / 15);
}

TEST(CourseParagraphsGiven, DoNotSayTheirLabel) {
  for (const Paragraph& paragraph : all_of_course()) {
    EXPECT_TRUE(std::none_of(paragraph.text.begin(), paragraph.text.end(), [](char c) {
      return c >= '0' && c <= '9';
    })) << paragraph.text;
    for (const std::string& module : course().modules)
      EXPECT_EQ(paragraph.text.find(module.substr(2) + "/"), std::string::npos) << paragraph.text;
    EXPECT_EQ(paragraph.text.find("README"), std::string::npos) << paragraph.text;
  }
}

// One that stands in two handouts would be in both parts, or have two labels.
TEST(CourseParagraphsGiven, AreAllDifferent) {
  std::set<std::string> texts;
  for (const Paragraph& paragraph : all_of_course())
    EXPECT_TRUE(texts.insert(paragraph.text).second) << paragraph.text;
  for (const Paragraph& paragraph : course().held_out) EXPECT_TRUE(is_held_out(paragraph.text));
  for (const Paragraph& paragraph : course().training) EXPECT_FALSE(is_held_out(paragraph.text));
}

TEST(CourseParagraphsGiven, AreNotInWhatIsPreTrainedOn) {
  const std::vector<Document> documents = documents_of(read_corpus(".", course_prose())).training;
  const std::vector<Document> without = without_paragraphs(documents, course().held_out);
  const auto sentences_in = [](const std::vector<Document>& all) {
    std::set<std::string, std::less<>> sentences;
    for (const Document& document : all)
      for (const Stretch& stretch : document) sentences.insert(stretch.begin(), stretch.end());
    return sentences;
  };
  const auto before = sentences_in(documents), after = sentences_in(without);
  std::int64_t were_there = 0;
  for (const Paragraph& paragraph : course().held_out)
    for (const std::string_view sentence : split_sentences(paragraph.source)) {
      EXPECT_FALSE(after.contains(sentence)) << sentence;
      were_there += before.contains(sentence) ? 1 : 0;
    }
  EXPECT_GT(were_there, std::ssize(course().held_out)) << "most are in the training part";
  EXPECT_GT(std::ssize(after), std::ssize(before) * 8 / 10);
}

TEST(WithoutParagraphsGiven, EndsStretches) {
  const std::vector<Document> documents{{{"A a.", "B b.", "C c.", "D d."}, {"B b."}}, {{"E e."}}};
  const std::vector<Paragraph> hidden{{.text = "", .source = "B b.\nE e."}};
  EXPECT_EQ(without_paragraphs(documents, hidden),
            (std::vector<Document>{{{"A a."}, {"C c.", "D d."}}}));
  EXPECT_EQ(without_paragraphs(documents, {}), documents);
}

void write_module(const TemporaryFolder& folder, const std::string& file, const std::string& text) {
  const std::filesystem::path path = std::filesystem::path(folder.path()) / file;
  std::filesystem::create_directories(path.parent_path());
  write_file(path.string(), text);
}

TEST(FolderParagraphsGiven, LeaveOutWhatStandsTwice) {
  const TemporaryFolder folder;
  const std::string a = distinct_words('a', 30), b = distinct_words('b', 30),
                    c = distinct_words('c', 30);
  write_module(folder, "01_one/README.md", a + "\n\n" + b);
  write_module(folder, "02_empty/README.md", "# Nothing yet\n");
  write_module(folder, "03_three/more.md", c + "\n\n" + a + " 8");
  write_module(folder, "docs/README.md", distinct_words('d', 30));
  const ParagraphParts parts = course_paragraphs(folder.path());
  EXPECT_EQ(parts.modules, (Texts{"01_one", "03_three"}));
  std::map<std::string, std::int32_t> labels;
  for (const auto* part : {&parts.training, &parts.held_out})
    for (const Paragraph& paragraph : *part) labels[paragraph.text] = paragraph.label;
  EXPECT_EQ(labels, (std::map<std::string, std::int32_t>{{b, 0}, {c, 1}}));
}

TEST(FolderParagraphsGiven, NeedTwoModules) {
  const TemporaryFolder folder;
  write_module(folder, "01_one/README.md", distinct_words('a', 30));
  EXPECT_TRUE(error_says([&] { course_paragraphs(folder.path()); },
                         {"has 1 modules", "words, expected two or more"}));
  EXPECT_TRUE(error_says([&] { course_paragraphs(folder.path() + "/none"); },
                         {"paragraphs: folder", "cannot be read"}));
}

using Ids = std::vector<std::int32_t>;
Ids ids_in(const Tensor& x) {
  return {x.values<std::int32_t>().begin(), x.values<std::int32_t>().end()};
}

TEST(LabelledBatch, HasAPlaceAndALabelOfEachText) {
  CpuDevice device;
  const std::vector<LabelledTokens> texts{{{10, 11, 12, 13, 14}, 7}, {{20}, 0}, {{}, 3}};
  const Batch batch = labelled_batch(device, texts, 6, {});
  EXPECT_EQ(batch.tokens.shape(), (Shape{3, 6}));
  EXPECT_EQ(ids_in(batch.tokens), (Ids{2, 10, 11, 12, 13, 3,  //
                                       2, 20, 3, 0, 0, 0,     //
                                       2, 3, 0, 0, 0, 0}))
      << "a text loses its end; ids 2 and 3 are [CLS] and [SEP]";
  EXPECT_EQ(ids_in(batch.lengths), (Ids{6, 3, 2}));
  EXPECT_EQ(ids_in(batch.segments), Ids(18, 0));
  EXPECT_EQ(ids_in(batch.picked), (Ids{0, 6, 12}));
  EXPECT_EQ(ids_in(batch.targets), (Ids{7, 0, 3}));
  EXPECT_EQ(batch.terms, 3);
  EXPECT_TRUE(error_says([&] { labelled_batch(device, texts, 2, {}); },
                         {"a context of 2 tokens, expected 3 or more"}));
}

TEST(ParagraphSamples, AreTheSameForEachLayout) {
  CpuDevice device;
  std::vector<LabelledTokens> texts;
  for (std::int32_t i = 0; i < 7; ++i) texts.push_back({Ids(index(i + 1), 10 + i), i});
  const ParagraphSamples samples(texts, 8, {}, 5);
  const Batch whole = samples.batch(device, 40, 6);
  EXPECT_EQ(samples.terms(40, 6), 6);
  for (std::int64_t i = 0; i < 6; ++i) {
    const Batch one = samples.copy()->batch(device, 40 + i, 1);
    const LabelledTokens& text = texts.at(index(samples.text(40 + i)));
    EXPECT_EQ(ids_in(one.targets), Ids{text.label});
    EXPECT_EQ(ids_in(one.targets)[0], whole.targets.data<std::int32_t>()[i]);
    EXPECT_TRUE(same_bits(one.tokens.view(), whole.tokens.rows(i, i + 1)));
  }
  std::map<std::int64_t, int> times;
  for (std::int64_t i = 0; i < 7000; ++i) ++times[samples.text(i)];
  for (std::int64_t i = 0; i < 7; ++i) EXPECT_NEAR(times[i], 1000, 150) << "text " << i;
  const ParagraphSamples other(texts, 8, {}, 6);
  std::int64_t same = 0;
  for (std::int64_t i = 0; i < 700; ++i) same += samples.text(i) == other.text(i) ? 1 : 0;
  EXPECT_LT(same, 200) << "another seed draws others";
  EXPECT_TRUE(
      error_says([&] { ParagraphSamples({}, 8, {}, 5); }, {"paragraphs: there are no texts"}));
}

TEST(ParagraphSamples, AreTheTextsInTokens) {
  PlainWordIds ids;
  const auto encode = [&](std::string_view text) { return ids(text); };
  const std::vector<Paragraph> two{{"the ring is", "", 4}, {"is slow", "", 2}};
  const std::vector<LabelledTokens> texts = encoded(two, encode);
  EXPECT_EQ(texts.at(0).tokens, (Ids{5, 6, 7}));
  EXPECT_EQ(texts.at(1).tokens, (Ids{7, 8}));
  EXPECT_EQ(texts.at(0).label, 4);
  EXPECT_EQ(texts.at(1).label, 2);
}

}  // namespace
}  // namespace aisc
