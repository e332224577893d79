//===- Program.cpp - trun where libtrun contains it ----------------------===//
//
// The program of packages (TCC_STANDALONE): Main.cpp, compiled as trunProgram, is in the library.
//
//===----------------------------------------------------------------------===//

int trunProgram(int argc, char **argv);

int main(int argc, char **argv) { return trunProgram(argc, argv); }
