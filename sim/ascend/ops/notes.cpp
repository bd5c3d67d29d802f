// Where the operators had to choose.
#include "ascend/ops/acl_op.h"

extern "C" const char* ascendSimOperatorNotes() {
  return "absorbed heads (size 512 with queryRope): 1, 2, 4 ... 128; in TND of 8.5 only 32, 64 and 128\n"
         "blockSize of queries longer than 1 in layouts other than TND: multiples of 128 up to 1024 (512 before 8.5), "
         "the newest document's limit\n"
         "sparseMode 3 allows as many keys as query tokens, as the check does; one sentence of the document asks for "
         "more\n"
         "fully masked rows are 0 with bit 1 of innerPrecise and NaN without it; rows of requests without keys are 0\n"
         "query rows beyond actualSeqLengths, and rows of no expert, are not written\n"
         "a matrix product may write FLOAT from 16-bit operands, except under CANN 8.1; FLOAT operands are never "
         "rounded to fewer bits, whatever cubeMathType allows\n"
         "a slot or page outside of its cache is a device fault, also -1, except where -1 is documented to skip\n"
         "repeatable executors are refused to attention (host lengths), to in-place conversions and to operators "
         "whose output has gaps\n"
         "DequantSwigluQuant: static quantisation divides by its scale; before 9.1 a row takes 21 bytes of unified "
         "buffer per output element (assumed)\n"
         "GroupedMatmulSwigluQuant takes matrices that are not transposed; no document shows it with others\n"
         "KvRmsNormRopeCache may be repeated; the host code of its two phases is generated and not public\n"
         "softmaxMax and softmaxSum of FlashAttentionVarLenScore have the shape [T, N, 8] of the vendor's example; one "
         "table of the newest document says [N, T, 8]\n"
         "ties of Topk and Sort keep the order of their places; quantisation rounds half to even\n"
         "not simulated and refused: int4, quantised keys and values, shifts of positions, shared prefixes, drop-pad "
         "routing, grouped products of several tensors\n";
}
