// Parameters of a rank: whole ones, and parts by rows, by groups and by columns, named after what they are.
#include <algorithm>

#include "passes/sharder.h"

namespace reprise {
namespace {

// Keeps the columns of `cut` in each row that `param` describes.
void take_columns(const Cut& cut, DerivedParam& param, TensorType& type) {
  for (ParamPart& part : param.parts) {
    part.column = cut.first;
    part.all_columns = cut.of;
  }
  type.shape[type.shape.rank() - 1] = Dim(cut.count);
}

}  // namespace

bool Sharder::is_one_number(const Node& n, size_t i) {
  const Shape& s = n.in[i]->type.shape;
  return n.in[i]->def->is_param() && s.rank() == 1 && s[0].is_constant() && s[0].factor == 1;
}

Result<Value*> Sharder::param(const Value* old) {
  const std::string& name = old->def->attrs.text("name");
  if (Node* known = out_.find_param(name)) return known->result();
  ASSIGN_OR_RETURN(Node * made, out_.add_source(*old->def->op, name, old->type, old->def->made_by));
  return made->result();
}

Result<Value*> Sharder::param_part(const Value* old, int dim, int64_t matrices, int64_t unit, const Cut& cut) {
  const std::string& whole_name = old->def->attrs.text("name");
  const std::string name = fmt::format("{}[{}+{}/{}]", whole_name, cut.first, cut.count, cut.of);
  if (Node* known = out_.find_param(name)) return known->result();
  const std::vector<ParamPart> parts = parts_of(old);
  DerivedParam mine{name, {}};
  for (int64_t m = 0; m < matrices; ++m)
    cut_parts(parts, (m * cut.of + cut.first) * unit, (m * cut.of + cut.first + cut.count) * unit, mine.parts);
  TensorType type = old->type;
  type.shape[dim] = Dim(type.shape.rank() == 1 ? matrices * cut.count : cut.count);
  return add_part(old, type, std::move(mine));
}

Result<Value*> Sharder::param_pieces(const Value* old, const std::vector<Cut>& pieces) {
  if (pieces.size() == 1) return param_part(old, 0, 1, 1, pieces.front());
  const std::string name = old->def->attrs.text("name") + name_of(pieces);
  if (Node* known = out_.find_param(name)) return known->result();
  const std::vector<ParamPart> parts = parts_of(old);
  DerivedParam mine{name, {}};
  TensorType type = old->type;
  for (const Cut& cut : pieces) cut_parts(parts, cut.first, cut.first + cut.count, mine.parts);
  type.shape[0] = Dim(count_of(pieces));
  return add_part(old, type, std::move(mine));
}

Result<Value*> Sharder::group_part(const Value* old, const Cut& groups, const std::optional<Cut>& cut, bool columns) {
  std::string name = fmt::format("{}[{}+{}/{}]", old->def->attrs.text("name"), groups.first, groups.count, groups.of);
  if (cut) name += fmt::format("{}[{}+{}/{}]", columns ? ":" : "", cut->first, cut->count, cut->of);
  if (Node* known = out_.find_param(name)) return known->result();
  const std::vector<ParamPart> parts = parts_of(old);
  const bool rows = cut && !columns;
  const int64_t each = rows_of(old->type.shape) / groups.of, first = rows ? cut->first : 0,
                count = rows ? cut->count : each;
  DerivedParam mine{name, {}}, others{name + " elsewhere", {}, true};
  cut_parts(parts, 0, groups.first * each, others.parts);
  cut_parts(parts, (groups.first + groups.count) * each, groups.of * each, others.parts);
  c_.derived().push_back(std::move(others));
  for (int64_t m = groups.first; m < groups.first + groups.count; ++m)
    cut_parts(parts, m * each + first, m * each + first + count, mine.parts);
  TensorType type = old->type;
  const int rank = type.shape.rank();
  type.shape[0] = Dim(groups.count * (rank == 1 ? count : 1));
  if (rank == 3) type.shape[1] = Dim(count);
  if (cut && columns) take_columns(*cut, mine, type);
  return add_part(old, type, std::move(mine));
}

bool Sharder::takes_columns(const Value* old) const {
  const std::vector<ParamPart> parts = parts_of(old);
  return std::all_of(parts.begin(), parts.end(), [](const ParamPart& part) {
    return part.recipe == Recipe::Converted || part.recipe == Recipe::QuantisedRows ||
           part.recipe == Recipe::Dequantised;
  });
}

Result<Value*> Sharder::column_part(const Value* old, const Cut& cut) {
  const std::string name = fmt::format("{}:[{}+{}/{}]", old->def->attrs.text("name"), cut.first, cut.count, cut.of);
  if (Node* known = out_.find_param(name)) return known->result();
  DerivedParam mine{name, parts_of(old)};
  TensorType type = old->type;
  take_columns(cut, mine, type);
  return add_part(old, type, std::move(mine));
}

Result<Value*> Sharder::added_once(const Value* old) {
  if (share_.rank == 0) return whole(old);
  const std::string name = old->def->attrs.text("name") + " of rank 0";
  if (Node* known = out_.find_param(name)) return known->result();
  c_.derived().push_back({name + " elsewhere", parts_of(old), true});
  return add_part(old, old->type, {name, {{.tensor = {}, .rows = rows_of(old->type.shape), .recipe = Recipe::Zeros}}});
}

Result<Value*> Sharder::add_part(const Value* old, const TensorType& type, DerivedParam mine) {
  ASSIGN_OR_RETURN(Node * made, out_.add_source(*old->def->op, mine.name, type, kPass));
  c_.derived().push_back(std::move(mine));
  return made->result();
}

std::vector<ParamPart> Sharder::parts_of(const Value* old) const {
  const std::string& name = old->def->attrs.text("name");
  const auto entry =
      std::find_if(c_.derived().begin(), c_.derived().end(), [&](const DerivedParam& p) { return p.name == name; });
  return entry != c_.derived().end() ? entry->parts : parts_of_name(name, old->type.shape);
}

}  // namespace reprise
