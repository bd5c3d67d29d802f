// docs/openapi.json tells what the code does: the same routes, and the same fields of requests.
#include <gtest/gtest.h>

#include <regex>
#include <set>

#include "base/file.h"
#include "server/api_fixture.h"
#include "server/known_fields.h"

namespace reprise::server::openapi_test {
namespace {

using Names = std::set<std::string>;

std::string content_of(const std::string& name) {
  auto text = read_file(std::string(REPRISE_SOURCE_DIR) + "/" + name);
  EXPECT_TRUE(text.is_ok()) << text.status().message();
  return text ? std::string(text->begin(), text->end()) : std::string();
}

const Json& file() {
  static const Json parsed = Json::parse(content_of("docs/openapi.json"));
  return parsed;
}

TEST(OpenApi, DescribesTheRoutesThatThereAre) {
  Names described, served;
  for (const auto& [path, methods] : file()["paths"].items())
    for (const auto& [method, operation] : methods.items()) {
      std::string upper = method;
      for (char& c : upper) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
      described.insert(upper + " " + path);
    }
  for (std::string name : Api::route_names()) {
    if (name.ends_with("/models/")) name += "{model}";
    if (name.ends_with("/responses/")) name += "{response}";
    served.insert(name);
  }
  EXPECT_EQ(described, served) << "docs/openapi.json and the table in src/server/api.cpp differ";
}

TEST(OpenApi, EveryReferenceLeadsSomewhere) {
  const Json flat = file().flatten();
  size_t references = 0;
  for (const auto& [at, value] : flat.items()) {
    if (!at.ends_with("/$ref")) continue;
    ++references;
    const auto target = value.get<std::string>();
    ASSERT_TRUE(target.starts_with("#/")) << at;
    EXPECT_TRUE(file().contains(Json::json_pointer(target.substr(1)))) << at << " names " << target;
  }
  EXPECT_GT(references, 100u);
}

// The fields of a schema and of what it is made of.
void add_fields(const Json& schema, Names& out) {
  if (schema.contains("$ref"))
    return add_fields(file()[Json::json_pointer(schema["$ref"].get<std::string>().substr(1))], out);
  if (schema.contains("properties"))
    for (const auto& [name, value] : schema["properties"].items()) {
      out.insert(name);
      add_fields(value, out);
    }
  for (const char* list : {"allOf", "anyOf", "oneOf"})
    if (schema.contains(list))
      for (const Json& part : schema[list]) add_fields(part, out);
  if (schema.contains("items")) add_fields(schema["items"], out);
}

Names all_matches(const std::string& text, const char* pattern) {
  const std::regex expression(pattern);
  Names out;
  for (std::sregex_iterator it(text.begin(), text.end(), expression), end; it != end; ++it) out.insert(it->str(1));
  return out;
}

// The parsers read every field by a name that is written at that place, so their text tells the fields.
TEST(OpenApi, DescribesTheFieldsThatParsersRead) {
  Names described, read;
  for (const auto& [path, methods] : file()["paths"].items())
    for (const auto& [method, operation] : methods.items())
      if (operation.contains("requestBody"))
        add_fields(operation["requestBody"]["content"]["application/json"]["schema"], described);
  std::string source;
  for (const char* name : {"generate_call.cpp", "call_reader.cpp", "api_routes.cpp", "adapter_routes.cpp",
                           "chat_tools.cpp", "answer_form.cpp", "image_reader.cpp", "messages_reader.cpp",
                           "ollama_reader.cpp", "ollama_routes.cpp", "pooled_call.cpp", "responses_reader.cpp"})
    source += content_of(std::string("src/server/") + name);
  const std::string reader = R"re((?:\b[fp]|options)\.(?:find|has|flag|integer|maybe_integer|number|maybe_number|)re"
                             R"re(text|maybe_text|texts|ids)\("([a-z_]+)")re";
  for (const Names& names : {all_matches(source, reader.c_str()), all_matches(source, R"re(body\.find\("([a-z_]+)")re"),
                             all_matches(source, R"re(\bname == "([a-z_]+)")re")})
    read.insert(names.begin(), names.end());
  EXPECT_GT(read.size(), 50u);
  for (const std::string& name : read) EXPECT_TRUE(described.contains(name)) << name << " is not in docs/openapi.json";
  for (const std::string& name : described)
    EXPECT_NE(source.find('"' + name + '"'), std::string::npos) << name << " is read by no parser";
}

// The members of one object: of its schema, and of all schemas that it is made of.
void add_members(const Json& schema, Names& out) {
  if (schema.contains("$ref"))
    return add_members(file()[Json::json_pointer(schema["$ref"].get<std::string>().substr(1))], out);
  if (schema.contains("properties"))
    for (const auto& [name, value] : schema["properties"].items()) out.insert(name);
  for (const char* list : {"allOf", "anyOf", "oneOf"})
    if (schema.contains(list))
      for (const Json& part : schema[list]) add_members(part, out);
}

// A field that the description has and the table lacks would be read and yet warned of.
TEST(OpenApi, DescribesTheFieldsOfEachFormThatAreKnownAsRead) {
  for (const auto& [form, schema] :
       std::vector<std::pair<FieldForm, const char*>>{{FieldForm::Completion, "CompletionRequest"},
                                                      {FieldForm::Chat, "ChatRequest"},
                                                      {FieldForm::Native, "NativeRequest"},
                                                      {FieldForm::NativeSampling, "NativeSampling"},
                                                      {FieldForm::Messages, "MessagesRequest"},
                                                      {FieldForm::OllamaChat, "OllamaChatRequest"},
                                                      {FieldForm::OllamaGenerate, "OllamaGenerateRequest"},
                                                      {FieldForm::OllamaOptions, "OllamaOptions"},
                                                      {FieldForm::Responses, "ResponseRequest"}}) {
    Names described, known;
    add_members(file()["components"]["schemas"][schema], described);
    for (const KnownField& f : known_fields())
      if (f.fate == FieldFate::Read && f.forms & (1u << static_cast<unsigned>(form))) known.insert(f.name);
    EXPECT_EQ(described, known) << schema;
  }
}

TEST_F(ApiTest, ServesItsDescription) {
  ApiOptions options;
  options.api_key = "secret";
  start(options, {}, {8, 64, 60, 1000}, false);
  HttpClient c(http_->port());
  EXPECT_EQ(c.get("/openapi.json").status, 401);
  const HttpAnswer a = c.get("/openapi.json", "authorization: Bearer secret\r\n");
  EXPECT_EQ(a.status, 200);
  EXPECT_EQ(a.headers.at("content-type"), "application/json");
  EXPECT_EQ(Json::parse(a.body), file());
  // Written in both, because the description is a file of its own.
  const HttpAnswer version = c.get("/version", "authorization: Bearer secret\r\n");
  EXPECT_EQ(Json::parse(version.body)["version"], file()["info"]["version"]);
}

}  // namespace
}  // namespace reprise::server::openapi_test
