/* The profiler interface of NCCL and RCCL, versions 4 to 7, as far as a C compiler has to know it: types, order and
 * padding. Written from the headers below; each copy that differs is a COPY of its own.
 *
 *   VERSION COPY  header
 *   4       0     NVIDIA/nccl src/include/plugin/profiler/profiler_v4.h (51c58fd6, 276b2fe4)
 *   5       0     NVIDIA/nccl src/include/plugin/profiler/profiler_v5.h (f1308997)
 *   6       0     NVIDIA/nccl src/include/plugin/profiler/profiler_v6.h (e5d9a7ae)
 *   6       1     ROCm/rocm-systems projects/rccl/src/include/plugin/profiler/profiler_v6.h (1a905b50): proxyOp longer
 *   6       2     NVIDIA/nccl src/include/plugin/profiler/profiler_v6.h (07cbae81): has kernelStep
 *   7       0     NVIDIA/nccl src/include/plugin/profiler/profiler_v7.h (88980683): has userTag, kernelVariant
 *   7       1     ROCm/rocm-systems src/include/plugin/profiler/profiler_v7.h (716db255): kernelVariant, no userTag
 *   7       2     NVIDIA/nccl plugins/profiler/example/nccl/profiler_v7.h (6e9d89ed): a tag's event, no kernelVariant
 */
#ifndef INTERFACE_H
#define INTERFACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#ifndef COPY
#define COPY 0
#endif

/* NVIDIA/nccl src/include/plugin/nccl_profiler.h (51c58fd6), and for the bits 15 the headers of version 7. */
enum {
  Group = 1 << 0,
  Coll = 1 << 1,
  P2p = 1 << 2,
  ProxyOp = 1 << 3,
  ProxyStep = 1 << 4,
  ProxyCtrl = 1 << 5,
  KernelCh = 1 << 6,
  NetPlugin = 1 << 7,
  GroupApi = 1 << 8,
  CollApi = 1 << 9,
  P2pApi = 1 << 10,
  KernelLaunch = 1 << 11,
  CeColl = 1 << 12,
  KernelPhase = 1 << 15,
};
enum { ProxyOpInProgress = 19, KernelChStop = 22, GroupStartApiStop = 23, GroupEndApiStart = 24 };

typedef int Result; /* ncclSuccess is 0 */
typedef void (*Logger)(int level, unsigned long flags, const char* file, int line, const char* format, ...);

#if VERSION == 4
typedef uint8_t Type;
#else
typedef uint64_t Type;
#endif

typedef struct {
  Type type;
  void* parentObj;
  int rank;
  union {
#if VERSION >= 5
    struct { bool graphCaptured; int groupDepth; } groupApi;
    struct {
      const char* func; size_t count; const char* datatype; int root; void* stream; bool graphCaptured;
#if VERSION == 7 && COPY == 0
      uint64_t userTag;
#endif
    } collApi;
    struct {
      const char* func; size_t count; const char* datatype; void* stream; bool graphCaptured;
#if VERSION == 7 && COPY == 0
      uint64_t userTag;
#endif
    } p2pApi;
    struct { void* stream; } kernelLaunch;
#endif
    struct {
      uint64_t seqNumber; const char* func; void const* sendBuff; void* recvBuff; size_t count; int root;
      const char* datatype; uint8_t nChannels; uint8_t nWarps; const char* algo; const char* proto;
#if VERSION >= 5
      void* parentGroup;
#endif
#if VERSION == 7 && COPY < 2
      const char* kernelVariant; bool isSymColl;
#endif
#if VERSION == 7 && COPY == 0
      uint64_t userTag;
#endif
    } coll;
    struct {
      const char* func; void* buff; const char* datatype; size_t count; int peer; uint8_t nChannels;
#if VERSION >= 5
      void* parentGroup;
#endif
#if VERSION == 7 && COPY == 0
      uint64_t userTag;
#endif
    } p2p;
    struct {
      pid_t pid; uint8_t channelId; int peer; int nSteps; int chunkSize; int isSend;
#if VERSION == 6 && COPY == 1
      uint64_t commHash; int64_t opCount; int32_t traceFuncIdx; int32_t traceProtocol; int32_t tracePattern;
      uint32_t traceTotalBytes; uint32_t proxyNbytes; int rawProxyNsteps;
#endif
    } proxyOp;
    struct { int step; } proxyStep;
    struct { uint8_t channelId; uint64_t pTimer; } kernelCh;
#if VERSION == 6 && COPY == 2
    struct {
      uint8_t channelId; uint8_t isSend; uint8_t peer; uint32_t step; uint32_t size; uint64_t startTs; uint64_t readyTs;
    } kernelStep;
#endif
    struct { int64_t id; void* data; } netPlugin;
#if VERSION >= 6
    struct {
      uint64_t seqNumber; const char* func; void const* sendBuff; void* recvBuff; size_t count; int root;
      const char* datatype; const char* syncStrategy; bool intraBatchSync; uint32_t batchSize; uint32_t numBatches;
      uint32_t ceSeqNum; void* stream;
#if VERSION == 7 && COPY == 0
      uint64_t userTag;
#endif
    } ceColl;
    struct { bool isComplete; int nRanks; } ceCollSync;
    struct { int numOps; size_t totalBytes; bool useIntraSync; } ceCollBatch;
#endif
#if VERSION == 7 && COPY < 2
    struct { uint8_t channelId; uint8_t phaseId; const char* phaseName; uint64_t pTimer; } kernelPhase;
#elif VERSION == 7
    struct { const char* tag; } userTag;
#endif
  };
} Descriptor;

typedef union {
  struct { size_t transSize; } proxyStep;
  struct { int appendedProxyOps; } proxyCtrl;
  struct { void* data; } netPlugin;
  struct { uint64_t pTimer; } kernelCh;
#if VERSION == 6 && COPY == 1
  struct { uint8_t counterKind; uint8_t reserved; uint16_t flags; int64_t value; int64_t value2; } proxyDiag;
#endif
} StateArgs;

typedef struct {
  const char* name;
#if VERSION == 4
  Result (*init)(void** context, int* eActivationMask, const char* commName, uint64_t commHash, int nNodes, int nranks,
                 int rank, Logger logfn);
#else
  Result (*init)(void** context, uint64_t commId, int* eActivationMask, const char* commName, int nNodes, int nranks,
                 int rank, Logger logfn);
#endif
  Result (*startEvent)(void* context, void** eHandle, Descriptor* eDescr);
  Result (*stopEvent)(void* eHandle);
  Result (*recordEventState)(void* eHandle, int eState, StateArgs* eStateArgs);
  Result (*finalize)(void* context);
} Profiler;

#endif
