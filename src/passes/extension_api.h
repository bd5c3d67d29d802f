// What an extension is written against: a shared object that brings ops, their kernels and rewrites to a program that
// is already built (--extension FILE.so). This header is all it needs, in C (from C99) or C++, from any compiler;
// docs/add-an-extension.md starts from the task.
//
// An extension exports the two symbols at the end. It runs while the program starts, on one thread, and stays loaded as
// long as the platform it was loaded into.
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// Changes whenever anything below does.
#define REPRISE_EXTENSION_ABI 1u

// A size: a factor times the live value of a symbol; symbol 0 always has the value 1.
typedef struct {
  int64_t factor;
  uint8_t symbol;
} reprise_dim;

static inline int64_t reprise_size(reprise_dim d, const int64_t* live) { return d.factor * live[d.symbol]; }

enum reprise_dtype {
  REPRISE_F32,
  REPRISE_F16,
  REPRISE_BF16,
  REPRISE_I8,
  REPRISE_U8,
  REPRISE_I32,
  REPRISE_I64,
  REPRISE_BOOL,
  REPRISE_F64,
  REPRISE_I16
};

typedef struct {
  int32_t dtype;  // reprise_dtype
  int32_t rank;
  reprise_dim size[5];
} reprise_tensor;

enum reprise_attr_kind { REPRISE_INT, REPRISE_FLOAT, REPRISE_STR, REPRISE_FLOATS };

typedef struct {
  const char* name;
  int32_t kind;   // reprise_attr_kind; says which of these holds the value
  int32_t count;  // of numbers
  int64_t integer;
  double number;
  const char* text;
  const double* numbers;
} reprise_attr;

// One call of an op, good until the function that it was given to returns.
typedef struct {
  const char* op;
  int32_t inputs, outputs, attrs;
  const reprise_tensor* in;
  const reprise_tensor* out;  // may be none while accepts is asked
  const reprise_attr* attr;   // in the order of the declaration
} reprise_call;

// What a kernel is launched with.
typedef struct {
  void* ptr[12];  // operands in the order of the declaration (NULL where an optional one is left out), then results
  reprise_dim dim[12];
  double scalar[4];
  void* workspace;
} reprise_args;

typedef void (*reprise_phase)(void);
// The types behind it. On the CPU every thread calls it and computes its own share of the work; what is computed may
// not depend on the number of threads. All threads finish phase 0 before phase 1 begins. On CUDA it launches on the
// stream, a cudaStream_t, and returns: it may not wait, allocate or copy to the host, since the stream may be recording
// a graph.
typedef void (*reprise_cpu_kernel)(const reprise_args* args, const int64_t* live, int thread, int threads);
typedef void (*reprise_null_kernel)(const reprise_args* args, const int64_t* live);
typedef void (*reprise_cuda_kernel)(const reprise_args* args, const int64_t* live, void* stream);

typedef struct {
  const char* name;     // unique: "cpu.my_op.f32"
  const char* op;       // known already, or declared before
  const char* device;   // "cpu", "cuda", "null"; entries of a device that is not in use are ignored
  int32_t score;        // the highest among the kernels that accept a call wins; a tie is an error
  int32_t index_dtype;  // REPRISE_I32 or REPRISE_I64: what it takes for operands declared as Index; 0: REPRISE_I32
  // NULL, or why not: one line that lives as long as the extension.
  const char* (*accepts)(const reprise_call* call);
  // Fills dim and scalar; the pointers are set already.
  void (*bind)(const reprise_call* call, reprise_args* args);
  // Scratch bytes at the bounds of the symbols; NULL: none.
  size_t (*workspace)(const reprise_call* call, const int64_t* bounds, int threads);
  reprise_phase phase[2];
} reprise_kernel;

// Both functions return 0, or not 0 after noting the error; then the extension returns at once.
typedef struct {
  uint32_t abi;
  void* context;  // first argument of both
  // Ops and rewrites in the IR's text form; see docs/add-an-extension.md.
  int (*declare)(void* context, const char* text);
  int (*add_kernel)(void* context, const reprise_kernel* kernel);  // copied, its strings as well
} reprise_host;

// What an extension exports:
//
//   extern "C" const uint32_t reprise_extension_abi = REPRISE_EXTENSION_ABI;
//   extern "C" int reprise_extension_register(const reprise_host* host);
//
// The number is looked at before anything is called. The function returns 0 when all went well.
typedef int (*reprise_register_function)(const reprise_host* host);

#ifdef __cplusplus
}
#endif
