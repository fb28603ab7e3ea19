/* Prints what a C compiler makes of the interface: a name and a number a line. */
#include <stdio.h>

#include "interface.h"

#define SHOW(what) printf(#what " %zu\n", (size_t)(what))

int main(void) {
  SHOW(sizeof(Type));
  SHOW(sizeof(Descriptor));
  SHOW(offsetof(Descriptor, type));
  SHOW(offsetof(Descriptor, parentObj));
  SHOW(offsetof(Descriptor, rank));
  SHOW(offsetof(Descriptor, coll.seqNumber));
  SHOW(offsetof(Descriptor, coll.func));
  SHOW(offsetof(Descriptor, coll.count));
  SHOW(offsetof(Descriptor, coll.datatype));
  SHOW(offsetof(Descriptor, coll.nChannels));
  SHOW(offsetof(Descriptor, kernelCh.channelId));
  SHOW(offsetof(Descriptor, kernelCh.pTimer));
  SHOW(sizeof(StateArgs));
  SHOW(offsetof(StateArgs, kernelCh.pTimer));
  SHOW(sizeof(Profiler));
  SHOW(offsetof(Profiler, name));
  SHOW(offsetof(Profiler, init));
  SHOW(offsetof(Profiler, startEvent));
  SHOW(offsetof(Profiler, stopEvent));
  SHOW(offsetof(Profiler, recordEventState));
  SHOW(offsetof(Profiler, finalize));
  return 0;
}
