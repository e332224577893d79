//===- MutateMessage.h - random structural changes of a protobuf message -===//
//
// Works by reflection, so it knows no format and survives changes of each: plans, ONNX models. A change deletes,
// duplicates, moves, swaps or adds an element of a repeated field, sets or clears a field, takes a value or a message
// from another place of the same tree, or alters a scalar towards values that break size arithmetic.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_TEST_SUPPORT_MUTATE_MUTATEMESSAGE_H
#define TCC_TEST_SUPPORT_MUTATE_MUTATEMESSAGE_H

#include <google/protobuf/message.h>
#include <random>
#include <string>

namespace tcc::test {

/// Changes one place of `message`, chosen at random among all its fields, nested ones included. The same state of
/// `random` gives the same change on every machine. Strings stay valid UTF-8, so the result can be serialised and
/// parsed again. Returns the change in words: "entries[0].instructions[3].operands: element 1 deleted".
std::string mutateMessage(google::protobuf::Message &message, std::mt19937_64 &random);

} // namespace tcc::test

#endif // TCC_TEST_SUPPORT_MUTATE_MUTATEMESSAGE_H
